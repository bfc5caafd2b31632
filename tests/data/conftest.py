"""A writer of Megatron's .bin/.idx format, from the description of the format alone: an implementation of its own."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}
WritePair = Callable[..., str]


@pytest.fixture
def write_pair(tmp_path: Path) -> WritePair:
    """write_pair(documents, dtype="int32", name="corpus", sequences=1) -> prefix; each document is cut into ``sequences`` pieces."""

    def write(documents: Sequence[Sequence[int]], dtype: str = "int32", name: str = "corpus", sequences: int = 1) -> str:
        pieces = [piece for document in documents for piece in np.array_split(np.array(document, dtype=dtype), sequences)]
        lengths = np.array([len(piece) for piece in pieces], dtype="<i4")
        pointers = (np.cumsum(lengths, dtype="<i8") - lengths) * np.dtype(dtype).itemsize
        borders = np.arange(len(documents) + 1, dtype="<i8") * sequences
        header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, CODES[dtype], len(lengths), len(borders))
        (tmp_path / f"{name}.bin").write_bytes(b"".join(piece.tobytes() for piece in pieces))
        (tmp_path / f"{name}.idx").write_bytes(header + lengths.tobytes() + pointers.astype("<i8").tobytes() + borders.tobytes())
        return str(tmp_path / name)

    return write
