"""Prepares a data source before training: everything that can be wrong with it is found here.

Both splits are contiguous ranges of documents of one pair, training first, so that Megatron's own datasets can read the same
files. stdlib_text is shuffled once, when it is stored (``stdlib_text.in_corpus_order``); an indexed pair is divided as it is, and
validation gets its last documents.
"""

from functools import partial
from hashlib import blake2b
from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import DataConfig
from primus_app.data.build import pair_bytes, write_pair
from primus_app.data.cache import Facts, cache_root, cached_folder
from primus_app.data.indexed import IndexedPair, open_pair, prefix_of
from primus_app.data.mock import mock_digest, mock_vocab_size
from primus_app.data.prepared import PreparedData, SplitData
from primus_app.data.scan import FORMAT, Progress, Scan, check_ids, remembered_scan, scan_pair
from primus_app.data.stdlib_text import Document, documents, in_corpus_order
from primus_app.data.tokenizer import ByteTokenizer, build_tokenizer
from primus_app.data.windows import num_windows
from primus_app.plan.data_rules import check_source

PAIR = "corpus"


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
    if problems := check_source(data, vocab_size):
        raise UserError(problems)
    if data.source == "mock":
        return _prepare_mock(data, vocab_size)
    pair, scan = _stdlib_pair(data, progress) if data.source == "stdlib_text" else _indexed_pair(data, progress)
    check_ids(scan, pair.prefix, pair.tokens.itemsize, vocab_size)
    train, valid = split_documents(pair, data.split)
    for name, split in (("train", train), ("valid", valid)):
        if split is not None and (name == "train" or evaluates):
            _check_enough(name, split, seq_len, global_batch_size)
    byte_level = data.source == "stdlib_text"
    return PreparedData(
        source=data.source,
        train=train,
        valid=valid,
        digest=_digest(scan, train, valid),
        tokenizer=data.tokenizer if byte_level else None,
        vocab_size=build_tokenizer(data.tokenizer).vocab_size if byte_level else scan.largest_id + 1,
        num_documents=scan.num_documents,
    )


def _prepare_mock(data: DataConfig, vocab_size: int) -> PreparedData:
    tokens = mock_vocab_size(vocab_size)
    valid = SplitData() if data.split[1] > 0 else None
    return PreparedData("mock", SplitData(), valid, mock_digest(tokens), tokenizer=None, vocab_size=tokens, num_documents=None)


def _indexed_pair(data: DataConfig, progress: Progress | None) -> tuple[IndexedPair, Scan]:
    assert data.path is not None
    pair = open_pair(prefix_of(data.path))
    return pair, remembered_scan(pair, cache_root(data.cache_dir), progress)


def _stdlib_pair(data: DataConfig, progress: Progress | None) -> tuple[IndexedPair, Scan]:
    tokenizer, found = build_tokenizer(data.tokenizer), in_corpus_order(documents())
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


def split_documents(pair: IndexedPair, shares: tuple[float, float]) -> tuple[SplitData, SplitData | None]:
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
    assert split.num_tokens is not None
    assert split.first_document is not None
    assert split.end_document is not None
    windows = num_windows(split.num_tokens, seq_len)
    if windows >= global_batch_size:
        return
    needed = global_batch_size * seq_len + 1
    message = (
        f"the {name} split has {split.num_tokens:,} tokens in {split.end_document - split.first_document} documents; one global batch "
        f"of {global_batch_size} samples of {seq_len} tokens needs {needed:,}."
    )
    fix = [f"training.global_batch_size={windows} is the largest that fits" if windows else "a shorter training.seq_len"]
    fix.append("data.split=… gives it a larger share" if name == "valid" else "a larger corpus")
    if name == "valid":
        fix.append("data.split=[100,0] training.eval_every=0 does without validation")
    raise UserError(Problem(f"{split.prefix}.bin", message, tuple(fix)))


def _digest(scan: Scan, train: SplitData, valid: SplitData | None) -> str:
    ranges = [(split.first_document, split.end_document) for split in (train, valid) if split is not None]
    return blake2b(f"{scan.content_digest} {ranges}".encode(), digest_size=16).hexdigest()
