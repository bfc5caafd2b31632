"""A pipeline's stages learn the shapes of what they exchange by a real pass: it leaves no trace in the model."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from primus_app.backends.patches import Patch

SHAPES_ID = "torch-pipeline-shape-pass"
MODULE = "torch.distributed.pipelining.stage"
NAMES = ("_forward_metadata_inference", "_backward_metadata_inference", "_shape_inference")
"""The methods that run the pass, in torch 2.13 (whose backward half computes again what is recomputed) and before it."""

SHAPES_TARGET = f"{MODULE}.PipelineStage._forward_metadata_inference"
MARK = "_primus_keeps_buffers"


def apply_shape_pass() -> None:
    """Put the buffers of a stage's module back after the pass, as they were before it."""
    stage = importlib.import_module(MODULE).PipelineStage
    found = [name for name in NAMES if name in vars(stage)]
    if not {*found} - {NAMES[1]}:
        raise RuntimeError(f"{SHAPES_ID}: {SHAPES_TARGET} is gone, which ran the model to learn its shapes.")
    for name in found:
        method = getattr(stage, name)
        if not hasattr(method, MARK):
            setattr(stage, name, _keeping_buffers(method))


def _keeping_buffers(infer: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    @functools.wraps(infer)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = [(local, local.clone()) for local in map(_local, self.submod.buffers())]
        result = infer(self, *args, **kwargs)
        with torch.no_grad():
            for local, value in before:
                if not torch.equal(local, value):  # What is written to, even the same, autograd would refuse to use.
                    local.copy_(value)
        return result

    setattr(run, MARK, True)
    return run


def _local(buffer: Any) -> Any:
    detached = buffer.detach()
    return detached.to_local() if hasattr(detached, "to_local") else detached


SHAPE_PASS_PATCHES: tuple[Patch, ...] = (
    Patch(
        id=SHAPES_ID,
        reason="The pass counts the tokens of experts, on later stages those of memory never written, and the first update of the "
        "selection bias goes by these counts: another loss curve than without a pipeline.",
        upstream="torchtitan 0.3.0 with torch 2.13 and before",
        target=SHAPES_TARGET,
        condition="always",
        is_needed=lambda: True,
        apply=apply_shape_pass,
    ),
)
