"""data=text: the pairs of a corpus of files, tokenised once and kept in the cache by their content."""

from dataclasses import asdict
from fractions import Fraction
from functools import partial
from hashlib import blake2b
from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import DataConfig
from primus_app.data.cache import Facts, cache_root, resumable_folder
from primus_app.data.indexed import IndexedPair, open_pair
from primus_app.data.scan import FORMAT, Progress, Scan, scan_pair
from primus_app.data.text.build import Recipe, build_pairs
from primus_app.data.text.files import TextFile, content_digest, list_files, refuse_changes
from primus_app.data.tokenizer import Tokenizer, open_tokenizer
from primus_app.plan.data_files import paths_of

Corpus = list[tuple[IndexedPair, Scan]]
"""A pair and what it holds for each split: training, and validation where it has a share."""


def text_corpus(data: DataConfig, vocab_size: int, progress: Progress | None = None) -> tuple[Corpus, Tokenizer]:
    """The pairs of ``data``, from the cache or made now, and the tokenizer that made them.

    Raises:
        UserError: files or tokenizer are missing or broken, or the tokenizer has ids that a model with ``vocab_size`` rows lacks.
    """
    tokenizer = open_tokenizer(data.tokenizer, data.end_of_document)
    check_vocabulary(tokenizer, vocab_size)
    files, cache = list_files(paths_of(data)), cache_root(data.cache_dir)
    content = content_digest(files, cache, progress)
    recipe = Recipe(data.text_key, tokenizer, valid_share(data.split))
    build = partial(_build, files, recipe, progress)
    folder, facts = resumable_folder(cache, f"text-{_key(content, recipe)}", build)
    return [(open_pair(str(folder / name)), Scan(**scan)) for name, scan in facts.items()], tokenizer


def valid_share(split: tuple[float, float]) -> Fraction:
    """The share of validation as the decimal fraction that was typed: 1/50 for [98, 2]."""
    train, valid = (Fraction(str(share)) for share in split)
    return valid / (train + valid)


def _build(files: list[TextFile], recipe: Recipe, progress: Progress | None, folder: Path) -> Facts:
    build_pairs(folder, files, recipe, progress)
    refuse_changes(files)
    names = ("train", "valid") if recipe.valid_share > 0 else ("train",)
    return {name: asdict(scan_pair(open_pair(str(folder / name)))) for name in names}


def _key(content: str, recipe: Recipe) -> str:
    facts = [FORMAT, content, recipe.tokenizer.identity, str(recipe.tokenizer.end_of_document), recipe.text_key, str(recipe.valid_share)]
    return blake2b("\0".join(facts).encode(), digest_size=16).hexdigest()


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Raises UserError where the tokenizer has ids that a model with ``vocab_size`` rows lacks."""
    if tokenizer.vocab_size <= vocab_size:
        return
    what = f"{vocab_size} rows are too few: {tokenizer.name} has token ids from 0 to {tokenizer.vocab_size - 1}."
    fix = (f"model.vocab_size={tokenizer.vocab_size} is the least that fits", "or data.tokenizer=… of this model")
    raise UserError(Problem("model.vocab_size", what, fix))
