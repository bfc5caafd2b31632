"""Weights from any format into any, one tensor after another: the writing of Hugging Face's files, and of an engine's."""

import ctypes
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path

import torch
from torch.distributed.checkpoint.api import CheckpointException

from primus_app.backends import native_tensors, safetensors_writer
from primus_app.backends.base import Backend
from primus_app.backends.expert_stacks import apart, pieces_of
from primus_app.backends.given_weights import GivenWeights
from primus_app.backends.hf_names import HfParameter, hf_buffers, hf_parameters
from primus_app.backends.safetensors_writer import Entry
from primus_app.backends.saved import open_weights
from primus_app.backends.stored_index import stored_problem
from primus_app.backends.weight_sources import TORCH_TYPES, Source
from primus_app.config.errors import ExitCode, Problem, UserError

Tell = Callable[[int, int], None]

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""mallopt's numbers (glibc's malloc.h)."""


class HuggingFaceWriting:
    """safetensors; ``dtypes`` are safetensors' words by name."""

    def __init__(self, given: GivenWeights, dtypes: Mapping[str, str]) -> None:
        self._given = given
        self._weights = {weight.name: weight for weight in (*hf_parameters(given.model), *hf_buffers(given.model))}
        self._entries = [Entry(name, dtypes[name], weight.shape) for name, weight in self._weights.items()]
        self.num_bytes = sum(entry.num_bytes for entry in self._entries)

    def write(self, folder: Path, tell: Tell) -> None:
        """All files, and a look at what they hold."""
        source = readable(self._given)

        def read(entry: Entry) -> torch.Tensor:
            return source.whole(self._weights[entry.name]).to(TORCH_TYPES[entry.dtype])

        safetensors_writer.write_files(folder, self._entries, read, _summed(tell, self.num_bytes))
        _require_same(folder, safetensors_writer.differences(folder, self._entries))


class NativeWriting:
    """A step folder of ``backend``; a tensor that is made of several weights has the widest of their types."""

    def __init__(self, given: GivenWeights, backend: Backend, dtypes: Mapping[str, str]) -> None:
        self._given, self._backend = given, backend
        self._tensors = backend.native_tensors(given.model)
        own = {name: dtypes[piece.stack.name] for name, piece in pieces_of(given.model).items()} | dict(dtypes)
        self._dtypes = {
            tensor.key: reduce(torch.promote_types, {TORCH_TYPES[own[weight.name]] for weight in tensor.weights})
            for tensor in self._tensors
        }
        self.num_bytes = sum(torch.Size(tensor.shape).numel() * self._dtypes[tensor.key].itemsize for tensor in self._tensors)

    def write(self, folder: Path, tell: Tell) -> None:
        """The engine's marks, all tensors and their index, and a look at what they hold."""
        self._backend.write_marks(folder)
        try:
            source = apart(readable(self._given), self._given.model)
            native_tensors.write_step(folder, self._tensors, self._dtypes, source, _summed(tell, self.num_bytes))
        except CheckpointException as error:
            [(cause, _)] = error.failures.values()
            raise cause from error
        if problems := stored_problem(folder, "DST"):
            raise UserError(problems, ExitCode.UNFIT_MACHINE)
        _require_same(folder, native_tensors.differences(folder, self._tensors, self._dtypes))


def keep_freed_memory() -> None:
    """Let the memory of a tensor that was written serve the next one, for the rest of this process, where the C library is glibc.

    It gives large pieces back to the system otherwise, and the first touch of a new page takes longer than what is copied into it.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def readable(given: GivenWeights) -> Source:
    """``given``'s weights; what cannot be read of them is a UserError."""
    try:
        return _Told(open_weights(given.folder, given.model), given)
    except UserError:
        raise
    except Exception as error:  # A pickle that is damaged may raise anything.
        raise UserError(_unreadable(given, error)) from error


class _Told:
    """A source whose every failure is one sentence."""

    def __init__(self, source: Source, given: GivenWeights) -> None:
        self._source, self._given = source, given

    def whole(self, weight: HfParameter) -> torch.Tensor:
        return self._try(lambda: self._source.whole(weight))

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        return self._try(lambda: self._source.part(weight, rows, columns))

    def _try(self, read: Callable[[], torch.Tensor]) -> torch.Tensor:
        try:
            return read()
        except Exception as error:
            raise UserError(_unreadable(self._given, error)) from error


def _unreadable(given: GivenWeights, error: Exception) -> Problem:
    # What torch says of a damaged pickle is for the programs that call it.
    said = str(error).strip().splitlines() if isinstance(error, OSError | ValueError | KeyError) else []
    reason = said[-1].replace(f"{given.folder}/", "") if said else type(error).__name__
    if given.step is None:
        return Problem(str(given.folder), f"these weights are damaged, or were removed meanwhile ({reason})", ("copy them again",))
    what = f"this checkpoint is damaged, or was removed meanwhile by its run ({reason})"
    return Problem(str(given.folder), what, ("choose another step with --step",))


def _summed(tell: Tell, total: int) -> Callable[[int], None]:
    done = 0

    def count(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        tell(done, total)

    return count


def _require_same(folder: Path, different: list[str]) -> None:
    if different:
        names = ", ".join(different[:4]) + (f" and {len(different) - 4} more" if len(different) > 4 else "")
        what = f"read back after writing, these tensors are not as they were written: {names}"
        raise UserError(Problem(str(folder), what, ("check the disk, and convert again",)), ExitCode.UNFIT_MACHINE)
