"""Going on from a step that another engine has saved: weights and AdamW's states into TorchTitan's, whatever the layout."""

from collections.abc import Sequence

import torch
from torch import nn
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer
from torchtitan.protocols.state_dict_adapter import BaseStateDictAdapter

from primus_app.backends.saved import Saved
from primus_app.backends.torchtitan.weights import fill, fill_states, parameters_of
from primus_app.config.schema import ModelConfig


@torch.no_grad()
def take_over(
    parts: Sequence[nn.Module], optimizers: OptimizersContainer, model: ModelConfig, adapter: BaseStateDictAdapter, saved: Saved, step: int
) -> None:
    """Fill weights, moments and the optimizers' own count of steps. Raises whatever reading ``saved`` raises."""
    fill(list(parts), model, adapter, saved.weights)
    optimizers.state_dict()  # Which makes the states where no step has been made yet; no weight moves.
    states = {param: state for optimizer in optimizers for param, state in optimizer.state.items()}
    for part in parts:
        params = parameters_of(part)
        for moment, source in saved.moments.items():
            fill_states(part, {name: states[param][moment] for name, param in params.items()}, model, adapter, source)
    for state in states.values():
        state["step"].fill_(step)


def set_schedule(schedulers: LRSchedulersContainer, step: int) -> None:
    """The schedule as it stands after ``step`` steps, and the rate of the next one in the optimizers."""
    schedulers.load_state_dict({"last_epoch": step})
    for scheduler in schedulers:
        for group, rate in zip(scheduler.optimizer.param_groups, scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
