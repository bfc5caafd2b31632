"""The weights that a new run starts from: of another run's checkpoint, or of a Hugging Face folder; any layout reads any."""

import logging
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torchtitan.components.checkpointer.base import ModelWrapper
from torchtitan.protocols.state_dict_adapter import BaseStateDictAdapter

from primus_app.backends.hf_names import HfParameter
from primus_app.backends.safetensors_files import stored_tensors
from primus_app.backends.torchtitan.weights import fill
from primus_app.config.schema import ModelConfig
from primus_app.run.saved_step import is_run_or_step

logger = logging.getLogger(__name__)


def load_weights(model_parts: list[nn.Module], model: ModelConfig, folder: Path, adapter: BaseStateDictAdapter) -> None:
    """Fill the weights, whatever their layout, from ``folder``: a checkpoint of this engine, or safetensors."""
    if is_run_or_step(folder):
        load_checkpoint(model_parts, folder)
    else:
        fill(model_parts, model, adapter, SafetensorsReader(folder))
    logger.info("the weights are those of %s", folder)


@torch.no_grad()
def load_checkpoint(model_parts: list[nn.Module], folder: Path) -> None:
    """The weights alone of a checkpoint; torch's format finds each shard in the layout it was written on."""
    wrapper = ModelWrapper(model_parts)
    states = wrapper.state_dict()
    dcp.load(states, checkpoint_id=str(folder))
    wrapper.load_state_dict(states)


class SafetensorsReader:
    """Reads tensors as they are stored; files are mapped, so only what is asked for is read."""

    def __init__(self, folder: Path) -> None:
        self._tensors = stored_tensors(folder, "checkpoint.load")
        self._open: dict[Path, Any] = {}

    def whole(self, weight: HfParameter) -> torch.Tensor:
        """The tensor, in its shape."""
        tensor: torch.Tensor = self._file(weight).get_tensor(weight.name)
        return tensor

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        """A rectangle of a matrix."""
        tensor: torch.Tensor = self._file(weight).get_slice(weight.name)[rows, columns]
        return tensor

    def _file(self, weight: HfParameter) -> Any:
        from safetensors import safe_open

        path = self._tensors[weight.name].file
        if path not in self._open:
            self._open[path] = safe_open(path, framework="pt")
        return self._open[path]
