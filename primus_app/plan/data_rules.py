"""Which data settings are legal, decided from the configuration alone, without a look at any file."""

from primus_app.config.errors import Problem
from primus_app.config.schema import DataConfig, TrainingConfig

VOCAB_SIZES = {"byte": 257}
"""Number of ids of each tokenizer, the end of a document included."""

MIN_MOCK_VOCAB_SIZE = 5
"""The made-up language gives each token four different successors and has a token that ends documents."""


def check_data(data: DataConfig, training: TrainingConfig, vocab_size: int) -> list[Problem]:
    """All problems of the data settings for a model with ``vocab_size`` rows in its embedding table."""
    return [*check_source(data, vocab_size), *_evaluation_problems(data, training)]


def check_source(data: DataConfig, vocab_size: int) -> list[Problem]:
    """The problems that preparing the data alone would meet."""
    return [*_path_problems(data), *_split_problems(data), *_vocabulary_problems(data, vocab_size)]


def _path_problems(data: DataConfig) -> list[Problem]:
    if data.source == "indexed" and not data.path:
        fix = ("data.path=/folder/corpus names the pair corpus.bin and corpus.idx", "data=stdlib_text needs no path")
        return [Problem("data.path", "data.source=indexed reads a .bin/.idx pair, and no path is given.", fix)]
    if data.source != "indexed" and data.path is not None:
        fix = ("data=indexed reads the pair at data.path", f"data.path=null keeps {data.source}")
        return [Problem("data.path", f"{data.path!r} has no effect with data.source={data.source}.", fix)]
    return []


def _split_problems(data: DataConfig) -> list[Problem]:
    train, valid = data.split
    fix = ("data.split=[98,2] holds back 2 % for validation",)
    if train < 0 or valid < 0:
        return [Problem("data.split", f"[{train:g}, {valid:g}] has a negative share.", fix)]
    if train == 0:
        return [Problem("data.split", f"[{train:g}, {valid:g}] leaves nothing to train on.", fix)]
    return []


def _evaluation_problems(data: DataConfig, training: TrainingConfig) -> list[Problem]:
    if training.eval_every == 0 or data.split[1] != 0 or data.split[0] <= 0:
        return []
    message = f"nothing is held back for validation, yet training.eval_every={training.eval_every} evaluates."
    return [Problem("data.split", message, ("data.split=[98,2] holds back 2 %", "training.eval_every=0 never evaluates"))]


def _vocabulary_problems(data: DataConfig, vocab_size: int) -> list[Problem]:
    if data.source == "stdlib_text":
        needed, owner = VOCAB_SIZES[data.tokenizer], f"data.tokenizer={data.tokenizer}"
    elif data.source == "mock":
        needed, owner = MIN_MOCK_VOCAB_SIZE, "data.source=mock"
    else:
        return []
    if vocab_size >= needed:
        return []
    message = f"{vocab_size} rows are too few: {owner} has token ids from 0 to {needed - 1}."
    return [Problem("model.vocab_size", message, (f"model.vocab_size={needed} is the least that fits",))]
