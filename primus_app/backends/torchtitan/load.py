"""The weights that a new run starts from: of another run's checkpoint, or of a Hugging Face folder; any layout reads any."""

import logging
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torchtitan.components.checkpointer.base import ModelWrapper
from torchtitan.protocols.state_dict_adapter import BaseStateDictAdapter

from primus_app.backends.torchtitan.weights import fill
from primus_app.backends.weight_sources import SafetensorsReader
from primus_app.config.errors import Problem
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


def check_checkpoint(folder: Path) -> list[Problem]:
    """Files of a checkpoint that are missing or shorter than its index says; a glance, nothing is read through."""
    try:
        stored = dcp.FileSystemReader(folder).read_metadata().storage_data or {}
    except Exception as error:  # A pickle that is damaged may raise anything.
        return [_damaged(folder, f"its index cannot be read: {type(error).__name__}")]
    ends: dict[str, int] = {}
    for place in stored.values():
        ends[place.relative_path] = max(ends.get(place.relative_path, 0), place.offset + place.length)
    short = [name for name, end in sorted(ends.items()) if not (folder / name).exists() or (folder / name).stat().st_size < end]
    return [_damaged(folder, f"{', '.join(short)} {'is' if len(short) == 1 else 'are'} missing or too short")] if short else []


def _damaged(folder: Path, why: str) -> Problem:
    return Problem("checkpoint.load", f"the checkpoint {folder} is damaged: {why}", ("take another step of that run, if it has one",))


@torch.no_grad()
def load_checkpoint(model_parts: list[nn.Module], folder: Path) -> None:
    """The weights alone of a checkpoint; torch's format finds each shard in the layout it was written on."""
    wrapper = ModelWrapper(model_parts)
    states = wrapper.state_dict()
    try:
        dcp.load(states, checkpoint_id=str(folder))
    except CheckpointException as error:
        causes = [f"rank {rank}: {type(cause).__name__}: {cause}" for rank, (cause, _) in sorted(error.failures.items())]
        raise RuntimeError(f"the checkpoint {folder} is damaged ({'; '.join(causes[:2])})") from error
    wrapper.load_state_dict(states)
