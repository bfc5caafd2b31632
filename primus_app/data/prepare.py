"""Prepares a data source before training: everything that can be wrong with it is found here.

Each split is a contiguous range of documents of a .bin/.idx pair, so that Megatron's own datasets can read the same files. stdlib_text
is shuffled once, when it is stored (``stdlib_text.in_corpus_order``); an indexed pair is divided as it is, and validation gets its last
documents; text has a pair for each split (``text.build``), and instructions have two (``instructions.build``).
"""

import json
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from hashlib import blake2b
from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import DataConfig
from primus_app.data.build import pair_bytes, write_pair
from primus_app.data.cache import Facts, cache_root, cached_folder
from primus_app.data.indexed import IndexedPair, open_pair
from primus_app.data.instructions.source import prepare_instructions
from primus_app.data.mock import mock_digest, mock_vocab_size
from primus_app.data.prepared import Examples, PreparedData, SplitData
from primus_app.data.scan import FORMAT, Progress, Scan, check_ids, remembered_scan, scan_pair
from primus_app.data.stdlib_text import Document, documents, in_corpus_order
from primus_app.data.text.source import text_corpus
from primus_app.data.tokenizer import ByteTokenizer
from primus_app.data.windows import num_windows
from primus_app.plan.data_files import check_files, paths_of, prefix_of
from primus_app.plan.data_rules import check_source

PAIR = "corpus"
Splits = tuple[SplitData, SplitData | None]
"""Training and validation."""


def prepare(
    data: DataConfig,
    *,
    vocab_size: int,
    seq_len: int,
    global_batch_size: int,
    evaluates: bool = True,
    progress: Progress | None = None,
) -> PreparedData:
    """Makes ``data`` ready to be opened by ``open_samples`` for a model with ``vocab_size`` rows.

    ``evaluates`` says whether validation is read at all; without it, it may be too small. ``progress`` is told (done, total) while a
    corpus is tokenised or read for the first time; later calls find it in the cache.

    Raises:
        UserError: illegal settings, files that are missing, broken, too small for one global batch or have ids that the model
            lacks, or a cache that cannot be written.
    """
    if problems := [*check_source(data, vocab_size), *check_files(data)]:
        raise UserError(problems)
    if data.source == "mock":
        return _prepare_mock(data, vocab_size)
    if data.source == "instructions":
        prepared = prepare_instructions(data, vocab_size, seq_len, progress)
    else:
        prepare_source = {"stdlib_text": _prepare_stdlib, "indexed": _prepare_indexed, "text": _prepare_text}[data.source]
        prepared = prepare_source(data, vocab_size, progress)
    for name, split in (("train", prepared.train), ("valid", prepared.valid)):
        if split is not None and (name == "train" or evaluates):
            _check_enough(name, split, seq_len, global_batch_size)
    return prepared


def _prepare_mock(data: DataConfig, vocab_size: int) -> PreparedData:
    tokens = mock_vocab_size(vocab_size)
    valid = SplitData() if data.split[1] > 0 else None
    return PreparedData("mock", SplitData(), valid, mock_digest(tokens), tokenizer=None, vocab_size=tokens, num_documents=None)


def _prepare_text(data: DataConfig, vocab_size: int, progress: Progress | None) -> PreparedData:
    corpus, tokenizer = text_corpus(data, vocab_size, progress)
    splits = [_range(pair, 0, pair.num_documents) for pair, _ in corpus]
    digests = [scan.content_digest for _, scan in corpus]
    return PreparedData(
        source=data.source,
        train=splits[0],
        valid=splits[1] if len(splits) > 1 else None,
        digest=blake2b(" ".join(digests).encode(), digest_size=16).hexdigest(),
        tokenizer=tokenizer.name,
        vocab_size=tokenizer.vocab_size,
        num_documents=sum(scan.num_documents for _, scan in corpus),
    )


def _prepare_indexed(data: DataConfig, vocab_size: int, progress: Progress | None) -> PreparedData:
    found: list[tuple[Scan, Splits]] = []
    problems: list[Problem] = []
    for path in paths_of(data):
        try:
            found.append(_indexed_pair(prefix_of(path), data, vocab_size, progress))
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    train, valid = _blend([splits for _, splits in found], data.weights)
    digests = [_digest(scan, *splits) for scan, splits in found]
    return PreparedData(
        source=data.source,
        train=train,
        valid=valid,
        digest=digests[0] if len(digests) == 1 else _blend_digest(digests, train),
        tokenizer=None,
        vocab_size=max(scan.largest_id for scan, _ in found) + 1,
        num_documents=sum(scan.num_documents for scan, _ in found),
    )


def _indexed_pair(prefix: str, data: DataConfig, vocab_size: int, progress: Progress | None) -> tuple[Scan, Splits]:
    pair = open_pair(prefix)
    scan = remembered_scan(pair, cache_root(data.cache_dir), progress)
    check_ids(scan, pair.prefix, pair.tokens.itemsize, vocab_size)
    return scan, split_documents(pair, data.split)


def _blend(pairs: Sequence[Splits], weights: Sequence[float] | None) -> Splits:
    """The splits of one pair as they are; of several, blended by ``weights`` or, without, by the number of their tokens."""
    if len(pairs) == 1:
        return pairs[0]
    held_back = [valid for _, valid in pairs if valid is not None]
    return _blend_split([train for train, _ in pairs], weights), _blend_split(held_back, weights) if held_back else None


def _blend_split(parts: Sequence[SplitData], weights: Sequence[float] | None) -> SplitData:
    tokens = [part.num_tokens or 0 for part in parts]
    return SplitData(num_tokens=sum(tokens), parts=tuple(parts), weights=tuple(weights or tokens))


def _blend_digest(digests: list[str], train: SplitData) -> str:
    exact = [Fraction(str(weight)) for weight in train.weights]
    shares = [str(weight / sum(exact)) for weight in exact]
    return blake2b(json.dumps([digests, shares]).encode(), digest_size=16).hexdigest()


def _prepare_stdlib(data: DataConfig, vocab_size: int, progress: Progress | None) -> PreparedData:
    pair, scan = _stdlib_pair(data, progress)
    check_ids(scan, pair.prefix, pair.tokens.itemsize, vocab_size)
    train, valid = split_documents(pair, data.split)
    return PreparedData(
        source=data.source,
        train=train,
        valid=valid,
        digest=_digest(scan, train, valid),
        tokenizer=ByteTokenizer.name,
        vocab_size=ByteTokenizer.vocab_size,
        num_documents=scan.num_documents,
    )


def _stdlib_pair(data: DataConfig, progress: Progress | None) -> tuple[IndexedPair, Scan]:
    tokenizer, found = ByteTokenizer(), in_corpus_order(documents())
    num_tokens = sum(len(document.text.encode()) + 1 for document in found)
    build = partial(_build_stdlib, found, tokenizer, progress)
    name = f"stdlib_text-{_content_key(found, tokenizer)}"
    folder, facts = cached_folder(cache_root(data.cache_dir), name, build, pair_bytes(len(found), num_tokens, itemsize=2))
    return open_pair(str(folder / PAIR)), Scan(**facts)


def _build_stdlib(found: list[Document], tokenizer: ByteTokenizer, progress: Progress | None, folder: Path) -> Facts:
    write_pair(folder / PAIR, found, tokenizer, progress)
    return vars(scan_pair(open_pair(str(folder / PAIR))))


def _content_key(found: list[Document], tokenizer: ByteTokenizer) -> str:
    digest = blake2b(f"{FORMAT} {tokenizer.name} {tokenizer.end_of_document}".encode(), digest_size=16)
    for document in found:
        raw = document.text.encode()
        digest.update(f"\0{document.name}\0{len(raw)}\0".encode())
        digest.update(raw)
    return digest.hexdigest()


def split_documents(pair: IndexedPair, shares: tuple[float, float]) -> Splits:
    """Ranges of documents in proportion to ``shares``, training first; a split with a share gets at least one document.

    Raises:
        UserError: a single document cannot be divided.
    """
    border = _border(pair, shares)
    valid = _range(pair, border, pair.num_documents) if shares[1] > 0 else None
    return _range(pair, 0, border), valid


def _border(pair: IndexedPair, shares: tuple[float, float]) -> int:
    if shares[1] == 0:
        return pair.num_documents
    if pair.num_documents < 2:
        fix = ("data.split=[100,0] training.eval_every=0 trains on all of it, without validation",)
        raise UserError(Problem("data.split", f"{pair.prefix}.idx has a single document, which cannot be divided.", fix))
    return min(max(round(pair.num_documents * shares[0] / sum(shares)), 1), pair.num_documents - 1)


def _range(pair: IndexedPair, first: int, end: int) -> SplitData:
    return SplitData(pair.prefix, first, end, pair.document_start(end) - pair.document_start(first))


def _check_enough(name: str, split: SplitData, seq_len: int, global_batch_size: int) -> None:
    """Raises UserError for less than one global batch, or a corpus of a blend without a single sample."""
    if split.examples is not None:
        _check_enough_examples(name, split, split.examples, global_batch_size)
        return
    parts = split.parts or (split,)
    windows = [num_windows(part.num_tokens or 0, seq_len) for part in parts]
    if sum(windows) < global_batch_size:
        raise UserError(_too_few(name, split, sum(windows), seq_len, global_batch_size))
    if empty := [part for part, count in zip(parts, windows, strict=True) if count == 0]:
        raise UserError([_too_few(name, part, 0, seq_len, 1) for part in empty])


def _too_few(name: str, split: SplitData, windows: int, seq_len: int, samples: int) -> Problem:
    parts = split.parts or (split,)
    documents = sum((part.end_document or 0) - (part.first_document or 0) for part in parts)
    batch = f"one global batch of {samples} samples of {seq_len} tokens" if samples > 1 else f"one sample of {seq_len} tokens"
    message = f"the {name} split has {split.num_tokens:,} tokens in {documents} documents; {batch} needs {samples * seq_len + 1:,}."
    fix = [f"training.global_batch_size={windows} is the largest that fits" if windows else "a shorter training.seq_len"]
    fix.append("data.split=… gives it a larger share" if name == "valid" else "a larger corpus")
    if name == "valid":
        fix.append("data.split=[100,0] training.eval_every=0 does without validation")
    return Problem("data.path" if split.parts else f"{split.prefix}.bin", message, tuple(fix))


def _check_enough_examples(name: str, split: SplitData, examples: Examples, global_batch_size: int) -> None:
    if examples.num_windows >= global_batch_size:
        return
    number = (split.end_document or 0) - examples.dropped
    left_out = f" ({examples.dropped:,} were too long and left out)" if examples.dropped else ""
    holds = f"the {name} split has {number:,} examples{left_out} in {examples.num_windows:,} samples{' by data.packing' * examples.packing}"
    fix = [f"training.global_batch_size={examples.num_windows} is the largest that fits"] if examples.num_windows else []
    fix += ["data.packing=false gives each example a sample of its own"] if examples.packing and number >= global_batch_size else []
    fix.append("data.split=… gives it a larger share" if name == "valid" else "more examples")
    if name == "valid":
        fix.append("data.split=[100,0] training.eval_every=0 does without validation")
    raise UserError(Problem("data.path", f"{holds}; one global batch needs {global_batch_size:,}.", tuple(fix)))


def _digest(scan: Scan, train: SplitData, valid: SplitData | None) -> str:
    ranges = [(split.first_document, split.end_document) for split in (train, valid) if split is not None]
    return blake2b(f"{scan.content_digest} {ranges}".encode(), digest_size=16).hexdigest()
