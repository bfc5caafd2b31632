"""A loss or a gradient that is no finite number ends training, before a checkpoint of it takes the place of a good one."""

import math

import torch
import torch.distributed as dist

KINDS = ("finite", "inf", "nan")
"""From good to bad, by the number that ranks tell each other."""

ADVICE = (
    "training has diverged and stops; checkpoints saved before are kept. Lower optimizer.lr, lengthen optimizer.warmup_steps, "
    "set optimizer.clip_grad_norm=1, or look at the data of this step"
)


class Diverged(RuntimeError):  # noqa: N818 — shown before its text
    """Training has diverged; its text is what the terminal shows."""


def diverged(step: int, loss: float | str, norm: float | str | None = None) -> Diverged:
    """The error that names the numbers of ``step``."""
    numbers = f"the loss of step {step} is {loss}" + ("" if norm is None else f", its gradient norm {norm}")
    return Diverged(f"{numbers}: {ADVICE}")


def stop_if_diverged(step: int, loss: float | None, norm: float, device: torch.device) -> None:
    """On all ranks together, of which those that know no loss (None) stop with the others; ``norm`` is the same on all.

    Raises:
        Diverged: where one of them is not finite.
    """
    kind = "finite" if loss is None else _kind(loss)
    number = loss if loss is not None and kind == "finite" else -math.inf
    told = torch.tensor([KINDS.index(kind), number], device=device, dtype=torch.float32)  # A maximum over NaN is anything.
    if dist.is_initialized():
        dist.all_reduce(told, dist.ReduceOp.MAX)
    worst = KINDS[int(told[0].item())]
    if worst != "finite" or not math.isfinite(norm):
        raise diverged(step, f"{told[1].item():g}" if worst == "finite" else worst, f"{norm:g}")


def _kind(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if math.isinf(value) else "finite"
