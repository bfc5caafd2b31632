"""The weights that a new run starts from: of another run's checkpoint, or of a Hugging Face folder; any layout reads any."""

import logging
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torchtitan.components.checkpointer.base import ModelWrapper
from torchtitan.protocols.state_dict_adapter import BaseStateDictAdapter

from primus_app.backends.saved import open_weights
from primus_app.backends.stored_folder import engine_of, is_stored
from primus_app.backends.torchtitan.weights import fill
from primus_app.config.schema import ModelConfig

logger = logging.getLogger(__name__)


def load_weights(model_parts: list[nn.Module], model: ModelConfig, folder: Path, adapter: BaseStateDictAdapter) -> None:
    """Fill the weights, whatever their layout, from ``folder``: a checkpoint of this engine or another, or safetensors."""
    if is_stored(folder) and engine_of(folder) == "torchtitan":
        load_checkpoint(model_parts, folder)
    else:
        fill(model_parts, model, adapter, open_weights(folder, model))
    logger.info("the weights are those of %s", folder)


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
