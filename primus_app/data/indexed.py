"""Reads Megatron's .bin/.idx pair as one memory-mapped run of tokens, and says where a broken pair is broken.

Megatron's own IndexedDataset reads the same files; it asserts where a user needs a message, and takes seconds to import.
"""

import struct
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_app.config.errors import Problem, UserError
from primus_app.plan.data_files import missing_pair

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
"""Magic, version, code of the number format, number of sequences, number of documents plus one."""

DTYPES: dict[int, type[np.integer]] = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
"""Megatron's codes; 6 and 7 are float64 and float32, which are no token ids."""


@dataclass(frozen=True)
class IndexedPair:
    """An open pair. All arrays are memory maps.

    Attributes:
        prefix: path without .bin or .idx.
        tokens: all token ids, shape [num_tokens].
        lengths: tokens of each sequence, int32 [num_sequences].
        pointers: byte offset of each sequence in the .bin, int64 [num_sequences].
        document_indices: first sequence of each document, and the number of sequences, int64 [num_documents + 1].
    """

    prefix: str
    tokens: NDArray[np.integer]
    lengths: NDArray[np.int32]
    pointers: NDArray[np.int64]
    document_indices: NDArray[np.int64]

    @property
    def num_documents(self) -> int:
        return len(self.document_indices) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    def document_start(self, document: int) -> int:
        """Token at which ``document`` begins; ``num_documents`` gives the end of the last one."""
        return int(self.document_starts(document, document + 1)[0])

    def document_starts(self, begin: int, end: int) -> NDArray[np.int64]:
        """Tokens at which documents [begin, end) begin; document ``num_documents`` begins behind the last token."""
        sequences = np.asarray(self.document_indices[begin:end])
        inside = np.minimum(sequences, len(self.pointers) - 1)
        return np.where(sequences == len(self.pointers), self.num_tokens, self.pointers[inside] // self.tokens.itemsize)

    def document_starts_between(self, start: int, end: int) -> NDArray[np.int64]:
        """All tokens in [start, end) at which a document begins, in O(log) reads of the index."""
        size = self.tokens.itemsize
        # Not np.searchsorted: the .idx is not aligned, so it would copy the whole array first.
        first, last = (bisect_left(self.pointers, token * size) for token in (start, end))
        begin, stop = (bisect_left(self.document_indices, sequence) for sequence in (first, last))
        return self.document_starts(begin, stop)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the files again; a pickled memory map would be a copy of the corpus."""
        return open_pair, (self.prefix,)


def open_pair(prefix: str) -> IndexedPair:
    """Opens ``prefix``.bin and ``prefix``.idx, and checks header and sizes; ``scan.scan_pair`` checks the content.

    Raises:
        UserError: a file is missing or unreadable, is not Megatron's, is empty, or the two do not belong together.
    """
    if missing := missing_pair(prefix):
        raise UserError(missing)
    bin_path, idx_path = Path(f"{prefix}.bin"), Path(f"{prefix}.idx")
    bin_bytes, idx_bytes = _size(bin_path), _size(idx_path)
    try:
        dtype, num_sequences, num_documents = _read_header(idx_path, idx_bytes)
        pair = IndexedPair(prefix, np.empty(0, dtype), *_map_index(idx_path, num_sequences, num_documents))
        _check_ends(pair, idx_path, bin_path, bin_bytes)
        tokens = np.memmap(bin_path, dtype=dtype, mode="r", shape=(bin_bytes // pair.tokens.itemsize,))
    except OSError as error:
        raise UserError(Problem(str(error.filename or prefix), f"cannot be read: {error.strerror}.")) from error
    return IndexedPair(prefix, tokens, pair.lengths, pair.pointers, pair.document_indices)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(Problem(str(path), f"cannot be read: {error.strerror}.")) from error


def _read_header(path: Path, size: int) -> tuple[type[np.integer], int, int]:
    with path.open("rb") as stream:
        raw = stream.read(HEADER.size)
    if not raw.startswith(MAGIC):
        raise _broken(path, f"does not begin with Megatron's magic {MAGIC!r}: at byte 0 it has {raw[: len(MAGIC)]!r}.")
    if len(raw) < HEADER.size:
        raise _broken(path, f"ends at byte {size}, within its header of {HEADER.size} bytes.")
    _, version, code, num_sequences, num_borders = HEADER.unpack(raw)
    if version != VERSION:
        raise _broken(path, f"has version {version} at byte 9; version {VERSION} is known.")
    if code not in DTYPES:
        raise _broken(path, f"has number format {code} at byte 17; token ids have one of {sorted(DTYPES)}.")
    if num_sequences == 0 or num_borders < 2:
        raise _broken(path, f"is empty: {num_sequences} sequences in {max(0, num_borders - 1)} documents.")
    needed = HEADER.size + 12 * num_sequences + 8 * num_borders
    # A multimodal pair has one more byte for each sequence; its texts can be read, its pictures would be lost.
    if size != needed:
        raise _broken(path, f"ends at byte {size}, but its {num_sequences} sequences and {num_borders - 1} documents take {needed} bytes.")
    return DTYPES[code], num_sequences, num_borders - 1


def _map_index(path: Path, num_sequences: int, num_documents: int) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    pointers_at = HEADER.size + 4 * num_sequences
    return (
        np.memmap(path, dtype="<i4", mode="r", offset=HEADER.size, shape=(num_sequences,)),
        np.memmap(path, dtype="<i8", mode="r", offset=pointers_at, shape=(num_sequences,)),
        np.memmap(path, dtype="<i8", mode="r", offset=pointers_at + 8 * num_sequences, shape=(num_documents + 1,)),
    )


def _check_ends(pair: IndexedPair, idx_path: Path, bin_path: Path, bin_bytes: int) -> None:
    first, last, num_sequences = int(pair.document_indices[0]), int(pair.document_indices[-1]), len(pair.lengths)
    if first != 0 or last != num_sequences:
        raise _broken(idx_path, f"has documents over sequences {first} to {last}, but holds sequences 0 to {num_sequences}.")
    itemsize = pair.tokens.itemsize
    needed = int(pair.pointers[-1]) + int(pair.lengths[-1]) * itemsize
    if needed == 0:
        raise _broken(bin_path, "is empty: it holds no token.")
    if bin_bytes != needed:
        missing = (
            f"token {bin_bytes // itemsize} is the first one missing" if bin_bytes < needed else f"what follows byte {needed} is unknown"
        )
        raise _broken(bin_path, f"ends at byte {bin_bytes}, but {idx_path.name} says it has {needed} bytes: {missing}.")


def _broken(path: Path, what: str) -> UserError:
    return UserError(Problem(str(path), what, ("write the .bin/.idx pair again, or copy both files again",)))
