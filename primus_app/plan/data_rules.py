"""Which data settings are legal, and whether the files they name are there; no file is opened."""

from collections.abc import Iterator

from primus_app.config.errors import Problem
from primus_app.config.schema import DataConfig, TrainingConfig
from primus_app.plan.data_files import BYTE, TOKENISED, absolute, check_files, paths_of, prefix_of

VOCAB_SIZES = {BYTE: 257}
"""Number of ids of each tokenizer without a file, the end of a document included."""

MIN_MOCK_VOCAB_SIZE = 5
"""The made-up language gives each token four different successors and has a token that ends documents."""

READS_FILES = ("indexed", "text", "instructions")
SOURCES_OF = {
    "text_key": ("text",),
    **dict.fromkeys(("tokenizer", "end_of_document"), TOKENISED),
    **dict.fromkeys(("prompt_key", "response_key", "messages_key", "chat_template", "packing", "too_long"), ("instructions",)),
}
"""Which sources a setting has an effect on; the other sources have one way only."""


def check_data(data: DataConfig, training: TrainingConfig, vocab_size: int) -> list[Problem]:
    """All problems of the data settings for a model with ``vocab_size`` rows in its embedding table."""
    return [*check_source(data, vocab_size), *check_files(data), *_evaluation_problems(data, training)]


def check_source(data: DataConfig, vocab_size: int) -> list[Problem]:
    """The problems that preparing the data would meet before it looks at a file."""
    return [
        *_path_problems(data),
        *_weight_problems(data),
        *_text_problems(data),
        *_split_problems(data),
        *_vocabulary_problems(data, vocab_size),
    ]


def _path_problems(data: DataConfig) -> Iterator[Problem]:
    paths = paths_of(data)
    if data.source not in READS_FILES:
        if data.path is not None:
            fix = ("data=indexed reads the pair at data.path, data=text the text", f"data.path=null keeps {data.source}")
            yield Problem("data.path", f"{data.path!r} has no effect with data.source={data.source}.", fix)
    elif not paths or not all(paths):
        reads, example = {
            "indexed": ("a .bin/.idx pair", "data.path=/folder/corpus names the pair corpus.bin and corpus.idx"),
            "text": ("files", "data.path=/folder names all files under it, data.path=/folder/book.txt one"),
            "instructions": ("files", "data.path=/folder names all files under it, data.path=/folder/chats.jsonl one"),
        }[data.source]
        given = "an empty one is given" if paths else "no path is given"
        yield Problem("data.path", f"data.source={data.source} reads {reads}, and {given}.", (example, "data=stdlib_text needs no path"))
    else:
        full = [prefix_of(path) if data.source == "indexed" else absolute(path) for path in paths]
        twice = sorted({path for path in full if full.count(path) > 1})
        advice = "name it once; data.weights says how often a pair is read" if data.source == "indexed" else "name it once"
        yield from (Problem("data.path", f"{path!r} is named twice.", (advice,)) for path in twice)


def _weight_problems(data: DataConfig) -> Iterator[Problem]:
    weights, paths = data.weights, paths_of(data)
    if weights is None:
        return
    if data.source != "indexed":
        why = "whose files are one corpus" if data.source in TOKENISED else "which is a single corpus"
        yield Problem("data.weights", f"has no effect with data.source={data.source}, {why}.", ("data.weights=null",))
    elif len(weights) != len(paths):
        what = f"{len(weights)} weights for {len(paths)} paths."
        yield Problem("data.weights", what, ("give each path one, in the order of data.path", "data.weights=null reads each by its size"))
    elif len(paths) == 1:
        yield Problem("data.weights", "has no effect on a single path.", ("data.weights=null",))
    for path, weight in zip(paths, weights, strict=False) if data.source == "indexed" else ():
        if weight <= 0:
            what = f"{weight:g}, the weight of {path}, is {'negative' if weight < 0 else 'zero: it would never be read'}."
            yield Problem("data.weights", what, ("weights are numbers above 0", "leave out the path and its weight"))


def _text_problems(data: DataConfig) -> Iterator[Problem]:
    for name, sources in SOURCES_OF.items():
        if data.source not in sources and getattr(data, name) != DataConfig.model_fields[name].default:
            reads = "data=text reads text" if "text" in sources else "data=instructions reads instructions"
            yield Problem(f"data.{name}", f"has no effect with data.source={data.source}.", ("leave it out", reads))
    if data.source in TOKENISED and data.tokenizer == BYTE and data.end_of_document is not None:
        what = "has no effect with data.tokenizer=byte, which has an end of document of its own."
        yield Problem("data.end_of_document", what, ("leave it out",))


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
        needed, owner = VOCAB_SIZES[BYTE], f"data.source={data.source}"
    elif data.source in TOKENISED and data.tokenizer in VOCAB_SIZES:
        needed, owner = VOCAB_SIZES[data.tokenizer], f"data.tokenizer={data.tokenizer}"
    elif data.source == "mock":
        needed, owner = MIN_MOCK_VOCAB_SIZE, "data.source=mock"
    else:
        return []
    if vocab_size >= needed:
        return []
    message = f"{vocab_size} rows are too few: {owner} has token ids from 0 to {needed - 1}."
    return [Problem("model.vocab_size", message, (f"model.vocab_size={needed} is the least that fits",))]
