"""Tensors in a folder that torch's distributed checkpoints have written, any rectangle of them, without a process group."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorStorageMetadata


class StoredTensors:
    """The tensors of one checkpoint by their keys. Raises OSError, or whatever a damaged pickle raises, where it cannot be read."""

    def __init__(self, folder: Path) -> None:
        metadata = FileSystemReader(folder).read_metadata()
        self._folder, self._places = folder, metadata.storage_data
        self._tensors = {key: entry for key, entry in metadata.state_dict_metadata.items() if isinstance(entry, TensorStorageMetadata)}
        self._last: tuple[MetadataIndex, torch.Tensor] | None = None

    def keys(self) -> Iterator[str]:
        """Every tensor's."""
        return iter(self._tensors)

    def __contains__(self, key: str) -> bool:
        return key in self._tensors

    def shape(self, key: str) -> tuple[int, ...]:
        """Of the whole tensor."""
        return tuple(self._tensors[key].size)

    def read(self, key: str, region: Sequence[slice] | None = None) -> torch.Tensor:
        """``region`` (by default all) of the tensor, put together from the pieces that ranks have written; only those are read."""
        entry = self._tensors[key]
        wanted = [slice(0, size) for size in entry.size] if region is None else list(region)
        found = torch.empty([part.stop - part.start for part in wanted], dtype=entry.properties.dtype)
        missing = found.numel()
        for chunk in entry.chunks:
            overlap = [_overlap(part, start, size) for part, start, size in zip(wanted, chunk.offsets, chunk.sizes, strict=True)]
            if all(part.start < part.stop for part in overlap):
                there = tuple(_shifted(part, start) for part, start in zip(overlap, chunk.offsets, strict=True))
                here = tuple(_shifted(part, begin.start) for part, begin in zip(overlap, wanted, strict=True))
                piece = self._chunk(key, chunk)[there]
                found[here] = piece
                missing -= piece.numel()
        if missing:
            raise ValueError(f"{key}: {missing} elements are not in {self._folder}")
        return found

    def _chunk(self, key: str, chunk: ChunkStorageMetadata) -> torch.Tensor:
        """One piece as it was written; the last is kept, since neighbours are often asked for one after another."""
        index = MetadataIndex(key, chunk.offsets)
        if self._last is None or self._last[0] != index:
            place = self._places[index]
            with (self._folder / place.relative_path).open("rb") as file:
                file.seek(place.offset)
                stored: Any = torch.load(io.BytesIO(file.read(place.length)), weights_only=True, map_location="cpu")
            self._last = index, stored.view(tuple(chunk.sizes))
        return self._last[1]


def _overlap(part: slice, start: int, size: int) -> slice:
    return slice(max(part.start, start), min(part.stop, start + size))


def _shifted(part: slice, by: int) -> slice:
    return slice(part.start - by, part.stop - by)
