"""Pipeline schedules take ready-made micro batches, as TorchTitan 0.3.0 hands them over."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from primus_app.backends.patches import Patch

PIPELINE_ID = "torch-pipeline-micro-batches"
MODULE = "torch.distributed.pipelining.schedules"
CLASSES = ("PipelineScheduleSingle", "PipelineScheduleMulti")
PIPELINE_TARGET = f"{MODULE}.{{{','.join(CLASSES)}}}.step"


def pipeline_patch_is_needed() -> bool:
    """Whether this torch's schedules only take whole batches."""
    schedules = importlib.import_module(MODULE)
    return any("arg_mbs" not in inspect.signature(getattr(schedules, name).step).parameters for name in CLASSES)


def apply_pipeline_patch() -> None:
    """Let ``step`` (and ``eval``, which calls it) take arg_mbs, kwarg_mbs and target_mbs beside a whole batch."""
    schedules = importlib.import_module(MODULE)
    for name in CLASSES:
        schedule = getattr(schedules, name, None)
        if schedule is None or not hasattr(schedule, "step") or not hasattr(schedule, "_step_microbatches"):
            raise RuntimeError(f"{PIPELINE_ID}: {MODULE}.{name} no longer has step and _step_microbatches.")
        if "arg_mbs" not in inspect.signature(schedule.step).parameters:
            schedule.step = _taking_micro_batches(schedule.step)


def _taking_micro_batches(whole: Callable[..., Any]) -> Callable[..., Any]:
    def step(
        self: Any,
        *args: Any,
        arg_mbs: Sequence[tuple[Any, ...]] | None = None,
        kwarg_mbs: Sequence[dict[str, Any]] | None = None,
        target_mbs: Sequence[Any] | None = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        if kwarg_mbs is None:
            return whole(self, *args, losses=losses, return_outputs=return_outputs, loss_kwargs=loss_kwargs, **kwargs)
        stages = getattr(self, "_stages", None) or [self._stage]
        for stage in stages:
            stage.has_backward = self._has_backward
            stage.clear_runtime_states()
        # Stages other than the first get their input from the one before.
        inputs = list(arg_mbs) if arg_mbs else [()] * self._n_microbatches
        self._step_microbatches(inputs, list(kwarg_mbs), target_mbs, losses, return_outputs, loss_kwargs=loss_kwargs)
        return None

    return step


PIPELINE_PATCHES: tuple[Patch, ...] = (
    Patch(
        id=PIPELINE_ID,
        reason="TorchTitan divides the batch itself and passes the micro batches on, which torch's schedules take only after 2.13.",
        upstream="torchtitan 0.3.0 with torch 2.13 and before",
        target=PIPELINE_TARGET,
        condition="the schedules of torch only take whole batches",
        is_needed=pipeline_patch_is_needed,
        apply=apply_pipeline_patch,
    ),
)
