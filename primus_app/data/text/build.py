"""From files of text to a pair for each split: read, tokenise and write at once; what was interrupted goes on where it stopped."""

import json
import logging
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from os import cpu_count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from primus_app.config.errors import Problem, UserError
from primus_app.data.scan import Progress, write_atomically
from primus_app.data.text.documents import documents
from primus_app.data.text.files import MOST_PROBLEMS, TextFile
from primus_app.data.text.growing import GrowingPair, divide, finish, remove
from primus_app.data.tokenizer import Tokenizer

STATE = "state.json"
BATCH_CHARACTERS = (1 << 21) * min(32, cpu_count() or 1)
"""Text that is tokenised together: enough for all threads, and about 100 bytes of memory a token while it is on its way."""
CHECKPOINT_CHARACTERS = 1 << 26
"""Text after which an interruption costs no more."""
CHECKED_BYTES = 1 << 32
"""How far files are read for further mistakes once there is one."""
UINT16_IDS = 65500
"""Vocabularies below this size are stored in 16 bits, as Megatron's own preparation does."""

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """All but the text that decides which tokens come out; ``valid_share`` is the share of validation, from 0 to below 1."""

    text_key: str
    tokenizer: Tokenizer
    valid_share: Fraction

    @property
    def dtype(self) -> type[np.integer]:
        return np.uint16 if self.tokenizer.vocab_size < UINT16_IDS else np.int32


@dataclass(frozen=True)
class State:
    """How far it has come: ``documents`` of ``file`` are done, and what each split then had."""

    file: int = 0
    documents: int = 0
    train: tuple[int, int] = (0, 0)
    valid: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class _Batch:
    texts: list[str]
    file: int
    documents: int
    bytes_done: int


def build_pairs(folder: Path, files: Sequence[TextFile], recipe: Recipe, progress: Progress | None = None) -> None:
    """Write train.bin, train.idx and, with a share, valid.bin, valid.idx into ``folder``, going on with what it holds.

    Document k of the corpus is for validation where floor((k+1)·share) is above floor(k·share): each fiftieth for a share of 2 %. When
    that leaves validation without a document, it gets the last tokens of the corpus. ``progress`` is told (bytes read, all bytes).

    Raises:
        UserError: files are broken, each with its place.
    """
    state, pairs = _open(folder, recipe)
    try:
        _tokenise(folder, files, recipe, state, pairs, progress)
    finally:
        for pair in pairs:
            pair.close()
    train, valid = pairs
    _finish(folder, recipe, train, valid)


def is_valid(document: int, share: Fraction) -> bool:
    """Whether document number ``document``, counted from 0 over the corpus, is for validation."""
    return math.floor((document + 1) * share) > math.floor(document * share)


def _open(folder: Path, recipe: Recipe) -> tuple[State, tuple[GrowingPair, GrowingPair]]:
    state = _read_state(folder / STATE)
    try:
        return state, _open_pairs(folder, recipe, state)
    except FileNotFoundError as error:
        log.warning("%s cannot be gone on with and begins anew: %s.", folder, error)
        return State(), _open_pairs(folder, recipe, State())


def _open_pairs(folder: Path, recipe: Recipe, state: State) -> tuple[GrowingPair, GrowingPair]:
    return GrowingPair(folder / "train", recipe.dtype, *state.train), GrowingPair(folder / "valid", recipe.dtype, *state.valid)


def _read_state(path: Path) -> State:
    try:
        values = json.loads(path.read_text())
        return State(values["file"], values["documents"], tuple(values["train"]), tuple(values["valid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return State()


def _tokenise(
    folder: Path,
    files: Sequence[TextFile],
    recipe: Recipe,
    state: State,
    pairs: tuple[GrowingPair, GrowingPair],
    progress: Progress | None,
) -> None:
    """While one batch is tokenised on all cores, the next is read and the last is written."""
    total = sum(file.size for file in files)
    since_checkpoint = 0
    writing: Future[None] | None = None
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        for batch in _ahead(_batches(files, recipe.text_key, state), reader):
            encoded = recipe.tokenizer.encode_batch(batch.texts)
            if writing is not None:
                writing.result()
            since_checkpoint += sum(map(len, batch.texts))
            keep = since_checkpoint >= CHECKPOINT_CHARACTERS
            since_checkpoint = 0 if keep else since_checkpoint
            writing = writer.submit(_store, encoded, recipe, pairs, folder / STATE if keep else None, batch)
            if progress is not None:
                progress(batch.bytes_done, total)
        if writing is not None:
            writing.result()


def _ahead(items: Iterator[T], pool: ThreadPoolExecutor) -> Iterator[T]:
    """``items``, each made while the one before is in use."""
    coming = pool.submit(next, items, None)
    while (item := coming.result()) is not None:
        coming = pool.submit(next, items, None)
        yield item


def _store(encoded: list[Any], recipe: Recipe, pairs: tuple[GrowingPair, GrowingPair], state: Path | None, batch: _Batch) -> None:
    train, valid = pairs
    first, end = train.num_documents + valid.num_documents, np.array([recipe.tokenizer.end_of_document])
    split: tuple[list[Any], list[Any]] = ([], [])
    for number, one in enumerate(encoded, first):
        split[is_valid(number, recipe.valid_share)].append(np.concatenate([recipe.tokenizer.ids(one), end]))
    for pair, found in zip(pairs, split, strict=True):
        pair.add(found)
    if state is not None:
        for pair in pairs:
            pair.sync()
        counts = [(pair.num_documents, pair.num_tokens) for pair in pairs]
        write_atomically(state, asdict(State(batch.file, batch.documents, *counts)))


def _batches(files: Sequence[TextFile], text_key: str, state: State) -> Iterator[_Batch]:
    """The documents behind ``state``, BATCH_CHARACTERS at a time."""
    texts: list[str] = []
    characters = 0
    before = sum(file.size for file in files[: state.file])
    for index in range(state.file, len(files)):
        file, done = files[index], state.documents if index == state.file else 0
        try:
            for document in documents(file, text_key, skip=done):
                done += 1
                texts.append(document.text)
                characters += len(document.text)
                if characters >= BATCH_CHARACTERS:
                    yield _Batch(texts, index, done, before + document.position)
                    texts, characters = [], 0
        except UserError as error:
            raise UserError([*error.problems, *_later_problems(files[index + 1 :], text_key)], error.code) from error
        before += file.size
    if texts:
        yield _Batch(texts, len(files) - 1, done, before)


def _later_problems(files: Sequence[TextFile], text_key: str) -> list[Problem]:
    """What else is broken, as far as it is quickly found."""
    problems: list[Problem] = []
    read = 0
    for file in files:
        try:
            for _ in documents(file, text_key):
                pass
        except UserError as error:
            problems += error.problems
        read += file.size
        if len(problems) >= MOST_PROBLEMS - 1 or read > CHECKED_BYTES:
            break
    return problems


def _finish(folder: Path, recipe: Recipe, train: GrowingPair, valid: GrowingPair) -> None:
    share, total = recipe.valid_share, train.num_tokens
    if share > 0 and valid.num_documents == 0:
        if total < 2:
            raise UserError(Problem("data.path", f"all text together is {total} token.", ("name more text",)))
        divide(train.prefix, valid.prefix, max(1, min(round(total * share), total - 1)), recipe.dtype)
    if share == 0:
        remove(valid.prefix)
    for pair in (train, valid) if share > 0 else (train,):
        finish(pair.prefix, recipe.dtype)
    (folder / STATE).unlink(missing_ok=True)
