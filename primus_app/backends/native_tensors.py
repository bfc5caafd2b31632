"""Writing weights as a step folder that an engine reads: one tensor after another, in one process without its layout."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.serialization import get_crc32_options, set_crc32_options

from primus_app.backends.hf_names import HfParameter
from primus_app.backends.stored_tensors import StoredTensors
from primus_app.backends.weight_sources import Source


@dataclass(frozen=True)
class NativeTensor:
    """One tensor in an engine's checkpoint: its key there, the engine's weights that it is made of, and how, in the type that they have."""

    key: str
    shape: tuple[int, ...]
    weights: tuple[HfParameter, ...]
    make: Callable[[Source], torch.Tensor]


def write_step(
    folder: Path, tensors: Sequence[NativeTensor], dtypes: Mapping[str, torch.dtype], source: Source, tell: Callable[[int], None]
) -> None:
    """torch's distributed checkpoint in ``folder``: each tensor in its type of ``dtypes`` (by key), .metadata last.

    In memory is one tensor at a time, with what it is made of. ``tell`` is given the bytes of each that is written.
    """
    planner = _OneByOne(tensors, dtypes, source, tell)
    states = {tensor.key: torch.empty(tensor.shape, dtype=dtypes[tensor.key], device="meta") for tensor in tensors}
    writer = _OneAfterAnother(folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        dcp.save(states, storage_writer=writer, planner=planner, no_dist=True)


def differences(folder: Path, tensors: Sequence[NativeTensor], dtypes: Mapping[str, torch.dtype]) -> list[str]:
    """What of ``tensors`` is not in ``folder`` as it should be: by name, shape or type; or is there beside them."""
    stored = StoredTensors(folder)
    found = {key: (stored.shape(key), stored.dtype(key)) for key in stored.keys()}  # noqa: SIM118 — no mapping
    wanted = {tensor.key: (tensor.shape, dtypes[tensor.key]) for tensor in tensors}
    return sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))


class _OneByOne(DefaultSavePlanner):
    """torch asks its planner for a tensor when it comes to writing it: here it is made then."""

    def __init__(
        self, tensors: Sequence[NativeTensor], dtypes: Mapping[str, torch.dtype], source: Source, tell: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._by_key = {tensor.key: tensor for tensor in tensors}
        self._dtypes, self._source, self._tell = dtypes, source, tell

    def resolve_data(self, write_item: WriteItem) -> Any:
        tensor = self._by_key[write_item.index.fqn]
        made = tensor.make(self._source).to(self._dtypes[tensor.key]).view(tensor.shape).contiguous()
        self._tell(made.nbytes)
        return made


class _OneAfterAnother(dcp.FileSystemWriter):
    """torch's own writer keeps each tensor that it has written until its file is complete, and so the whole model in memory."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """All tensors of the one process into one file, down to the disk."""
        name, results = "__0_0.distcp", []
        with (Path(self.path) / name).open("wb") as file, _no_checksums():
            for item in plan.items:
                start = file.tell()
                _save(planner.resolve_data(item), file)
                length = file.tell() - start
                results.append(WriteResult(item.index, length, _StorageInfo(name, start, length)))
            file.flush()
            os.fsync(file.fileno())
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done


def _save(tensor: Any, file: IO[bytes]) -> None:
    try:
        torch.save(tensor, file)
    except RuntimeError as error:
        # Of a full disk, or of an interrupt, torch tells the position in its archive.
        raise error.__context__ if isinstance(error.__context__, OSError | KeyboardInterrupt) else error from None


@contextmanager
def _no_checksums() -> Iterator[None]:
    """torch.save sums up each tensor's bytes, slower than a disk takes them; nothing that reads them looks at the sum."""
    before = get_crc32_options()
    set_crc32_options(False)
    try:
        yield
    finally:
        set_crc32_options(before)
