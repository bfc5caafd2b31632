"""Writing safetensors files one tensor at a time, where the library's own writer wants a whole file's tensors in memory."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from primus_app.backends.safetensors_files import INDEX, WHOLE, stored_tensors

FILE_BYTES = 5 * 10**9
"""Above this a model is written in several files, as transformers does; a file is larger only for one tensor that is."""

ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2}
CHUNK_BYTES = 1 << 20
"""Written in one piece."""

ALIGNMENT = 8
"""Bytes to which the header's length is filled up with spaces, as the library does, so that tensors can be mapped."""


@dataclass(frozen=True)
class Entry:
    """One tensor to be written; ``dtype`` in safetensors' words."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


def write_files(folder: Path, entries: Sequence[Entry], read: Callable[[Entry], Any], tell: Callable[[int], None]) -> None:
    """model.safetensors, or several files and their index, down to the disk.

    ``read`` gives a tensor of torch, on the CPU, in the entry's shape and type; ``tell`` is given the bytes of each that is written.
    Raises OSError where it cannot be written.
    """
    files = list(divide(entries, FILE_BYTES))
    names = [WHOLE] if len(files) == 1 else [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
    for name, held in zip(names, files, strict=True):
        _write_file(folder / name, held, read, tell)
    if len(files) > 1:
        places = {entry.name: name for name, held in zip(names, files, strict=True) for entry in held}
        index = {"metadata": {"total_size": sum(entry.num_bytes for entry in entries)}, "weight_map": places}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def differences(folder: Path, entries: Sequence[Entry]) -> list[str]:
    """The names of tensors that are not in ``folder`` with the entry's shape and type, or are there beside them."""
    found = {name: (tensor.dtype, tensor.shape) for name, tensor in stored_tensors(folder, str(folder)).items()}
    wanted = {entry.name: (entry.dtype, entry.shape) for entry in entries}
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def divide(entries: Sequence[Entry], limit: int) -> Iterator[list[Entry]]:
    """Neighbours together up to ``limit`` bytes; one that is larger alone."""
    file: list[Entry] = []
    size = 0
    for entry in entries:
        if file and size + entry.num_bytes > limit:
            yield file
            file, size = [], 0
        file.append(entry)
        size += entry.num_bytes
    yield file


def _write_file(path: Path, entries: Sequence[Entry], read: Callable[[Entry], Any], tell: Callable[[int], None]) -> None:
    # Wide types first, so that every tensor begins at a multiple of its items' size.
    ordered = sorted(entries, key=lambda entry: -ITEM_BYTES[entry.dtype])
    with path.open("wb") as file:
        file.write(_header(ordered))
        for entry in ordered:
            values = _bytes_of(read(entry))
            for start in range(0, len(values), CHUNK_BYTES):
                file.write(values[start : start + CHUNK_BYTES])
            tell(entry.num_bytes)
        file.flush()
        os.fsync(file.fileno())


def _header(entries: Sequence[Entry]) -> bytes:
    """The format: 8 bytes with the header's length, the header as JSON (huggingface.co/docs/safetensors)."""
    header: dict[str, Mapping[str, Any]] = {"__metadata__": {"format": "pt"}}
    start = 0
    for entry in entries:
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [start, start + entry.num_bytes]}
        start += entry.num_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(tensor: Any) -> Any:
    import torch

    return memoryview(tensor.contiguous().view(-1).view(torch.uint8).numpy())
