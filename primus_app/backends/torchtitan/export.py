"""A checkpoint of TorchTitan as a Hugging Face folder's weights, one file at a time, in one process without its layout."""

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch.distributed.checkpoint.api import CheckpointException
from torchtitan.protocols.state_dict_adapter import BaseStateDictAdapter

from primus_app.backends.safetensors_files import INDEX, WHOLE
from primus_app.backends.torchtitan.model import build_model_spec
from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import ModelConfig

FILE_BYTES = 5 * 10**9
"""Above this a model is written in several files, as transformers does; a file is larger only for one tensor that is."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
KEPT_FP32 = "e_score_correction_bias"
"""transformers keeps it in float32 whatever the type of the rest."""


@dataclass(frozen=True)
class Part:
    """One tensor of the checkpoint and what it becomes: names and bytes under Hugging Face's names, none for a shared output layer."""

    name: str
    shape: tuple[int, ...]
    exported: dict[str, int]

    @property
    def num_bytes(self) -> int:
        return sum(self.exported.values())


class Exporter:
    """The weights of ``model`` out of the checkpoint ``step_folder``; ``dtype`` is fp32 or bf16. Call prepare_device first."""

    def __init__(self, model: ModelConfig, step_folder: Path, dtype: str) -> None:
        spec = build_model_spec(model, seq_len=model.max_position_embeddings, cpu=True, compute="fp32")
        with torch.device("meta"):
            native = spec.model.build().state_dict()
        assert spec.state_dict_adapter is not None
        self._step_folder, self._dtype = step_folder, DTYPES[dtype]
        self._adapter: BaseStateDictAdapter = spec.state_dict_adapter(spec.model, None)
        self.parts = [part for name, tensor in native.items() if (part := self._part(name, tensor)).exported]

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors as they are written."""
        return sum(part.num_bytes for part in self.parts)

    def write(self, folder: Path) -> None:
        """model.safetensors, or several files and their index; in memory is one file at a time. Raises OSError where it cannot."""
        files = list(divide(self.parts, FILE_BYTES))
        names = [WHOLE] if len(files) == 1 else [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
        for name, parts in zip(names, files, strict=True):
            _save(self._tensors(parts), folder / name)
        if len(files) > 1:
            places = {tensor: name for name, parts in zip(names, files, strict=True) for part in parts for tensor in part.exported}
            index = {"metadata": {"total_size": self.num_bytes}, "weight_map": places}
            (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")

    def _part(self, name: str, tensor: torch.Tensor) -> Part:
        exported = self._adapter.to_hf({name: tensor})
        return Part(name, tuple(tensor.shape), {key: prod(value.shape) * self._type(key).itemsize for key, value in exported.items()})

    def _type(self, name: str) -> torch.dtype:
        return torch.float32 if name.endswith(KEPT_FP32) else self._dtype

    def _tensors(self, parts: Sequence[Part]) -> dict[str, torch.Tensor]:
        native = {part.name: torch.empty(part.shape) for part in parts}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
            try:
                dcp.load(native, checkpoint_id=str(self._step_folder), no_dist=True)
            except (CheckpointException, OSError) as error:
                raise UserError(_unreadable(self._step_folder, error)) from error
        # A copy, since experts are views of one tensor, which the format does not take.
        whole = torch.contiguous_format
        return {name: value.to(self._type(name), copy=True, memory_format=whole) for name, value in self._adapter.to_hf(native).items()}


def _save(tensors: dict[str, torch.Tensor], file: Path) -> None:
    try:
        save_file(tensors, file, {"format": "pt"})
    except SafetensorError as error:  # how the library tells a full disk
        raise OSError(str(error)) from error


def _unreadable(folder: Path, error: BaseException) -> Problem:
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    what = f"this checkpoint is damaged, or was removed meanwhile by its run ({reason})"
    return Problem(str(folder), what, ("choose another step with --step",))


def divide(parts: Sequence[Part], limit: int) -> Iterator[list[Part]]:
    """Neighbours together up to ``limit`` bytes; one that is larger alone."""
    file: list[Part] = []
    for part in parts:
        if file and sum(each.num_bytes for each in file) + part.num_bytes > limit:
            yield file
            file = []
        file.append(part)
    yield file
