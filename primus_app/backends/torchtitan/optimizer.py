"""AdamW and its schedule as the design has them: 1-D tensors and stacks of biases undecayed, the rate of step k counted from 1."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer
from torchtitan.components.optimizer.optimizer import ParamGroupConfig

from primus_app.config.schema import OptimizerConfig
from primus_app.plan.learning_rate import learning_rate, warmup_steps


class Optimizers(OptimizersContainer):
    """TorchTitan's container; its one parameter group becomes two by the number of dimensions, whatever the names are."""

    @dataclass(kw_only=True, slots=True)
    class Config(OptimizersContainer.Config):
        pass

    @staticmethod
    def _build_param_groups(
        model: nn.Module, param_group_configs: list[ParamGroupConfig], impl_kwargs: dict[str, Any]
    ) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[str]]]:
        groups, patterns = OptimizersContainer._build_param_groups(model, param_group_configs, impl_kwargs)
        split = {name: [part for group in listed for part in _by_dimension(group)] for name, listed in groups.items()}
        names = {name: [patterns[name][0]] * len(listed) for name, listed in split.items()}
        return split, names


def _by_dimension(group: dict[str, Any]) -> list[dict[str, Any]]:
    """The group's tensors of two and more dimensions as they are, the others and all biases without decay; empty groups left out."""
    named = list(zip(group["params"], group["param_names"], strict=True))
    found = []
    for decays, decay in ((True, group["weight_decay"]), (False, 0.0)):
        chosen = [(param, name) for param, name in named if (param.ndim >= 2 and "bias" not in name.rpartition(".")[2]) == decays]
        if chosen:
            params, names = zip(*chosen, strict=True)
            found.append({**group, "params": list(params), "param_names": list(names), "weight_decay": decay})
    return found


def optimizer_config(optimizer: OptimizerConfig) -> Optimizers.Config:
    """AdamW over all parameters."""
    settings = {
        "lr": optimizer.lr,
        "betas": (optimizer.beta1, optimizer.beta2),
        "eps": optimizer.eps,
        "weight_decay": optimizer.weight_decay,
    }
    return Optimizers.Config(param_groups=[ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs=settings)])


class Schedule(LRSchedulersContainer):
    """The learning rate of :func:`primus_app.plan.learning_rate.learning_rate`; upstream's decay runs one step behind it."""

    @dataclass(kw_only=True, slots=True)
    class Config(LRSchedulersContainer.Config):
        settings: dict[str, Any]
        """Our OptimizerConfig as plain data, since TorchTitan writes its configuration as JSON."""
        schedule_steps: int

        def build(self, *, optimizers: OptimizersContainer, training_steps: int) -> LRSchedulersContainer:
            """LambdaLR counts finished steps from 0, so its argument is the next step less one."""
            optimizer = OptimizerConfig(**self.settings)
            return LRSchedulersContainer(optimizers, lambda done: learning_rate(optimizer, done + 1, self.schedule_steps) / optimizer.lr)


def schedule_config(optimizer: OptimizerConfig, schedule_steps: int) -> Schedule.Config:
    """``warmup_steps`` and ``total_steps`` are for TorchTitan's log; the rate comes from ``settings``."""
    warmup = warmup_steps(optimizer, schedule_steps)
    return Schedule.Config(warmup_steps=warmup, total_steps=schedule_steps, settings=optimizer.model_dump(), schedule_steps=schedule_steps)
