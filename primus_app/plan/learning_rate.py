"""The learning rate of each step: one formula that every backend is brought to."""

import math

from primus_app.config.schema import OptimizerConfig

WSD_DECAY_SHARE = 0.2
"""Part of the schedule over which wsd falls, after https://arxiv.org/abs/2404.06395."""


def learning_rate(optimizer: OptimizerConfig, step: int, schedule_steps: int) -> float:
    """The rate of optimizer step ``step``, counted from 1, under a schedule of ``schedule_steps`` steps.

    Rises linearly to the peak over W = :func:`warmup_steps`: lr * step / W. After it the schedule runs over
    (step - W) / (schedule_steps - W), reaching min_lr at its last step and staying there.
    """
    warmup = warmup_steps(optimizer, schedule_steps)
    if step <= warmup:
        return optimizer.lr * step / warmup
    progress = min((step - warmup) / max(schedule_steps - warmup, 1), 1.0)
    lowest = optimizer.lr / 10 if optimizer.min_lr is None else optimizer.min_lr
    return lowest + (optimizer.lr - lowest) * _remaining(optimizer.schedule, progress)


def warmup_steps(optimizer: OptimizerConfig, schedule_steps: int) -> int:
    """Steps of the linear rise: optimizer.warmup_steps, or a tenth of the schedule."""
    return schedule_steps // 10 if optimizer.warmup_steps is None else optimizer.warmup_steps


def _remaining(schedule: str, progress: float) -> float:
    """Share of the way from min_lr up to lr, 1 at the peak and 0 at the end."""
    match schedule:
        case "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
        case "linear":
            return 1.0 - progress
        case "wsd":
            return min(1.0, (1.0 - progress) / WSD_DECAY_SHARE)
    return 1.0
