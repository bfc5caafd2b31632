"""A .bin that grows document by document and can be cut back to a known length, and its .idx, written last."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from primus_app.data.indexed import DTYPES, HEADER, MAGIC, VERSION

CHUNK = 1 << 20
"""Entries of the index that are held together."""


class GrowingPair:
    """Tokens in ``prefix``.bin and the lengths of documents, int32, in ``prefix``.lengths; both begin with what was there before.

    Raises FileNotFoundError when less is there than ``num_documents`` and ``num_tokens`` say.
    """

    def __init__(self, prefix: Path, dtype: type[np.integer], num_documents: int = 0, num_tokens: int = 0) -> None:
        self.prefix, self.dtype = prefix, dtype
        self.num_documents, self.num_tokens = num_documents, num_tokens
        self._tokens = _open_at(_bin(prefix), num_tokens * np.dtype(dtype).itemsize)
        self._lengths = _open_at(_lengths(prefix), num_documents * 4)

    def add(self, documents: Sequence[NDArray[np.integer]]) -> None:
        """Append the tokens of ``documents``."""
        if not documents:
            return
        tokens = np.concatenate(documents).astype(self.dtype)
        self._tokens.write(tokens.tobytes())
        self._lengths.write(np.array([len(document) for document in documents], dtype="<i4").tobytes())
        self.num_documents += len(documents)
        self.num_tokens += len(tokens)

    def sync(self) -> None:
        """Bring everything to the disk."""
        for stream in (self._tokens, self._lengths):
            stream.flush()
            os.fsync(stream.fileno())

    def close(self) -> None:
        self._tokens.close()
        self._lengths.close()


def finish(prefix: Path, dtype: type[np.integer]) -> None:
    """Write the .idx of a closed pair from its lengths, which are removed."""
    lengths = np.memmap(_lengths(prefix), dtype="<i4", mode="r")
    write_index(prefix, lengths, dtype)
    _lengths(prefix).unlink()


def remove(prefix: Path) -> None:
    """Take away a closed pair without an .idx."""
    for path in (_bin(prefix), _lengths(prefix)):
        path.unlink()


def divide(prefix: Path, other: Path, num_tokens: int, dtype: type[np.integer]) -> None:
    """Move the last ``num_tokens`` tokens of the closed pair ``prefix`` to the empty one ``other``; a document on the border is cut."""
    size = np.dtype(dtype).itemsize
    lengths = np.fromfile(_lengths(prefix), dtype="<i4")
    ends = np.cumsum(lengths, dtype=np.int64)
    border = int(ends[-1]) - num_tokens
    cut = int(np.searchsorted(ends, border, side="left"))  # the document that has the last token before the border
    inside = border - (int(ends[cut - 1]) if cut else 0)
    first = np.append(lengths[:cut], np.int32(inside))
    last = np.append(lengths[cut] - inside, lengths[cut + 1 :])
    tail = np.fromfile(_bin(prefix), dtype=dtype, offset=border * size)
    tail.tofile(_bin(other))
    first.astype("<i4").tofile(_lengths(prefix))
    last[last > 0].astype("<i4").tofile(_lengths(other))
    os.truncate(_bin(prefix), border * size)


def write_index(prefix: Path, lengths: NDArray[np.int32], dtype: type[np.integer]) -> None:
    """The .idx of one sequence per document; ``lengths`` in tokens may be a memory map."""
    code = next(code for code, known in DTYPES.items() if known is dtype)
    size, count = np.dtype(dtype).itemsize, len(lengths)
    with open(f"{prefix}.idx", "wb") as stream:
        stream.write(HEADER.pack(MAGIC, VERSION, code, count, count + 1))
        for begin in range(0, count, CHUNK):
            stream.write(lengths[begin : begin + CHUNK].astype("<i4").tobytes())
        start = 0
        for begin in range(0, count, CHUNK):
            ends = start + np.cumsum(lengths[begin : begin + CHUNK], dtype=np.int64)
            stream.write((np.concatenate([[start], ends[:-1]]) * size).astype("<i8").tobytes())
            start = int(ends[-1])
        for begin in range(0, count + 1, CHUNK):
            stream.write(np.arange(begin, min(begin + CHUNK, count + 1), dtype="<i8").tobytes())


def _open_at(path: Path, size: int) -> BinaryIO:
    if size and (not path.exists() or path.stat().st_size < size):
        raise FileNotFoundError(f"{path} has less than {size} bytes")
    stream = open(path, "r+b" if path.exists() else "wb")  # noqa: SIM115 — closed by its owner
    stream.truncate(size)
    stream.seek(size)
    return stream


def _bin(prefix: Path) -> Path:
    return Path(f"{prefix}.bin")


def _lengths(prefix: Path) -> Path:
    return Path(f"{prefix}.lengths")
