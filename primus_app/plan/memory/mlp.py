"""Activation bytes that the dense MLP of one layer keeps for its backward pass under Megatron with Transformer Engine."""

from primus_app.plan.memory.widths import Widths, element, operand
from primus_app.plan.workload import Workload


def fused_norm(workload: Workload) -> Widths:
    """The norm before an MLP: its input, and its output as the input of the first product."""
    return Widths(split=(element(workload) + operand(workload)) * workload.model.hidden_size)


def fused_swiglu(workload: Workload, width: int) -> Widths:
    """SwiGLU of ``width``: the first product's output of twice the width, kept by the fused activation, and the second's input.

    Megatron-core, fusions/fused_bias_swiglu.py keeps its input alone; the result is kept by the second product.
    """
    return Widths(parallel=element(workload) * 2 * width + operand(workload) * width)
