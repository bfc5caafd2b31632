"""Tensors in a folder that torch's distributed checkpoints have written, any rectangle of them, without a process group."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorStorageMetadata

KEPT_BYTES = 256 << 20
"""Pieces that are kept for the next question, as query, key and value are asked for in turns; the last one always."""


class StoredTensors:
    """The tensors of one checkpoint by their keys. Raises OSError, or whatever a damaged pickle raises, where it cannot be read."""

    def __init__(self, folder: Path) -> None:
        self._reader = FileSystemReader(folder)
        metadata = self._reader.read_metadata()
        self._folder, self._places = folder, metadata.storage_data
        self._tensors = {key: entry for key, entry in metadata.state_dict_metadata.items() if isinstance(entry, TensorStorageMetadata)}
        self._kept: OrderedDict[MetadataIndex, torch.Tensor] = OrderedDict()

    def keys(self) -> Iterator[str]:
        """Every tensor's."""
        return iter(self._tensors)

    def __contains__(self, key: str) -> bool:
        return key in self._tensors

    def shape(self, key: str) -> tuple[int, ...]:
        """Of the whole tensor. Raises KeyError for one that is not there."""
        if key not in self._tensors:
            raise KeyError(f"{key} is not in {self._folder}")
        return tuple(self._tensors[key].size)

    def dtype(self, key: str) -> torch.dtype:
        """As it is stored."""
        dtype: torch.dtype = self._tensors[key].properties.dtype
        return dtype

    def read(self, key: str, region: Sequence[slice] | None = None) -> torch.Tensor:
        """``region`` (by default all) of the tensor, put together from the pieces that ranks have written; only those are read.

        It may share its memory with what is kept here: not to be changed.
        """
        wanted = [slice(0, size) for size in self.shape(key)] if region is None else list(region)
        entry = self._tensors[key]
        found: torch.Tensor | None = None
        missing = prod(part.stop - part.start for part in wanted)
        for chunk in entry.chunks:
            overlap = [_overlap(part, start, size) for part, start, size in zip(wanted, chunk.offsets, chunk.sizes, strict=True)]
            if all(part.start < part.stop for part in overlap) or (not wanted and missing):
                there = tuple(_shifted(part, start) for part, start in zip(overlap, chunk.offsets, strict=True))
                piece = self._chunk(key, chunk)[there]
                if piece.numel() == missing and found is None:
                    return piece
                if found is None:
                    found = torch.empty([part.stop - part.start for part in wanted], dtype=entry.properties.dtype)
                found[tuple(_shifted(part, begin.start) for part, begin in zip(overlap, wanted, strict=True))] = piece
                missing -= piece.numel()
        if missing or found is None:
            raise ValueError(f"{key}: {missing} elements are not in {self._folder}")
        return found

    def _chunk(self, key: str, chunk: ChunkStorageMetadata) -> torch.Tensor:
        """One piece as it was written."""
        index = MetadataIndex(key, chunk.offsets)
        if index in self._kept:
            self._kept.move_to_end(index)
            return self._kept[index]
        place = self._places[index]
        self._make_room(place.length)
        with (self._folder / place.relative_path).open("rb") as file:
            # torch's own window on a file: the archive is read from there, with no copy of it in between.
            window = self._reader._slice_file(file, place)
            try:
                stored: Any = torch.load(window, weights_only=True, map_location="cpu")
            except Exception as error:  # A pickle that is damaged may raise anything, and names no file.
                reason = error.strerror if isinstance(error, OSError) else type(error).__name__
                raise ValueError(f"{self._folder / place.relative_path} is damaged at {key} ({reason})") from error
        self._kept[index] = stored.view(tuple(chunk.sizes))
        return self._kept[index]

    def _make_room(self, num_bytes: int) -> None:
        while self._kept and sum(piece.nbytes for piece in self._kept.values()) + num_bytes > KEPT_BYTES:
            self._kept.popitem(last=False)


def _overlap(part: slice, start: int, size: int) -> slice:
    return slice(max(part.start, start), min(part.stop, start + size))


def _shifted(part: slice, by: int) -> slice:
    return slice(part.start - by, part.stop - by)
