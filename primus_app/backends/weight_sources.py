"""Where the weights of a run come from, by their Hugging Face names: drawn from the seed, or read from safetensors."""

import errno
import math
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from primus_app.backends.hf_names import HfParameter, initial_std
from primus_app.backends.safetensors_files import stored_tensors
from primus_app.backends.seeded import seeded_normal
from primus_app.config.schema import ModelConfig

TORCH_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""torch's types by safetensors' words."""

MADV_POPULATE_READ = 22
"""Of Linux's mman.h, since 5.14; older systems answer EINVAL."""

CONSTANTS = {"ones": 1.0, "zeros": 0.0}


class Source(Protocol):
    """Where weights come from, by their Hugging Face names."""

    def whole(self, weight: HfParameter) -> torch.Tensor:
        """The tensor, in its shape."""
        ...

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        """A rectangle of a matrix, or of matrices in a stack, whose rows count through; with the same bits as in the whole."""
        ...


class SeededWeights:
    """The first weights of a run, or any part of them."""

    def __init__(self, model: ModelConfig, seed: int) -> None:
        self._model, self._seed = model, seed

    def whole(self, weight: HfParameter) -> torch.Tensor:
        """All of it; norms are 1 and biases 0."""
        if weight.kind in CONSTANTS:
            return torch.full(weight.shape, CONSTANTS[weight.kind])
        return self._drawn(weight, 0, math.prod(weight.shape)).view(weight.shape)

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        """The numbers depend on the place in the whole alone, so none beside these is drawn."""
        if weight.kind in CONSTANTS:
            return torch.full((rows.stop - rows.start, columns.stop - columns.start), CONSTANTS[weight.kind])
        width = weight.shape[-1]
        if columns.stop - columns.start == width:
            return self._drawn(weight, rows.start * width, rows.stop * width).view(-1, width)
        starts = range(rows.start * width, rows.stop * width, width)
        return torch.stack([self._drawn(weight, start + columns.start, start + columns.stop) for start in starts])

    def _drawn(self, weight: HfParameter, start: int, stop: int) -> torch.Tensor:
        std = initial_std(self._model, weight.kind)
        return torch.from_numpy(seeded_normal(self._seed, weight.name, weight.shape, std, start, stop).reshape(-1))


class SafetensorsReader:
    """Reads tensors as they are stored, and only what is asked for. ``where`` is told in problems with the files."""

    def __init__(self, folder: Path, where: str = "checkpoint.load") -> None:
        self._tensors = stored_tensors(folder, where)
        self._open: dict[Path, Any] = {}

    def whole(self, weight: HfParameter) -> torch.Tensor:
        """The tensor, in its shape."""
        return self._read(weight, 0, math.prod(weight.shape)).view(weight.shape)

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        """A rectangle of a matrix or of a stack."""
        width = weight.shape[-1]
        if columns.stop - columns.start == width:
            return self._read(weight, rows.start * width, rows.stop * width).view(-1, width)
        if len(weight.shape) == 3:
            return self._read(weight, rows.start * width, rows.stop * width).view(-1, width)[:, columns]
        tensor: torch.Tensor = self._mapped(weight).get_slice(weight.name)[rows, columns]
        return tensor

    def _read(self, weight: HfParameter, start: int, stop: int) -> torch.Tensor:
        """Elements ``start`` to ``stop``: the file's own pages, in memory only as long as the tensor is used."""
        stored = self._tensors[weight.name]
        dtype = TORCH_TYPES[stored.dtype]
        if start == stop:
            return torch.empty(0, dtype=dtype)
        first, num_bytes = stored.start + start * dtype.itemsize, (stop - start) * dtype.itemsize
        pages = np.memmap(stored.file, np.uint8, "c", first, num_bytes)
        _load(pages)
        found = torch.from_numpy(pages)
        return (found if first % dtype.itemsize == 0 else found.clone()).view(dtype)

    def _mapped(self, weight: HfParameter) -> Any:
        from safetensors import safe_open

        path = self._tensors[weight.name].file
        if path not in self._open:
            self._open[path] = safe_open(path, framework="pt")
        return self._open[path]


def _load(pages: "np.memmap[Any, Any]") -> None:
    """Have all of it read now, where the system can: an OSError if that fails, for which it would end the process at the first touch."""
    try:
        pages._mmap.madvise(MADV_POPULATE_READ)  # type: ignore[attr-defined]
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise OSError(errno.EIO, f"{pages.filename} cannot be read: it is cut off, or its disk fails") from error
