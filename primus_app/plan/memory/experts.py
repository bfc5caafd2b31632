"""Activation bytes that router and experts of one layer keep for the backward pass under Megatron with Transformer Engine."""

from primus_app.config.schema import MoeConfig
from primus_app.plan.memory.mlp import fused_swiglu
from primus_app.plan.memory.widths import Widths, element, operand
from primus_app.plan.workload import Workload

FLOAT32 = 4


def fused_experts(workload: Workload, moe: MoeConfig) -> Widths:
    """Router, shared and routed experts at balanced routing, without the norm before them.

    Each of a token's k copies keeps the first product's input (hidden_size), its output (twice the expert's width) and the second's input
    (the width): Megatron-core, transformer/moe/experts.py (TEGroupedMLP). The dispatcher's own copies are not kept. The permutation
    keeps a row map of 2·experts + 1 int32 a token (Transformer Engine, pytorch/permutation.py); the router its logits
    and scores in float32.
    """
    wide, narrow, width = element(workload), operand(workload), moe.moe_intermediate_size
    hidden = workload.model.hidden_size
    routed = Widths(routed=narrow * hidden, routed_parallel=wide * 2 * width + narrow * width)
    router = Widths(split=FLOAT32 * (2 * moe.num_experts + 1) + 2 * FLOAT32 * moe.num_experts)
    shared = fused_swiglu(workload, moe.num_shared_experts * width)
    return routed + router + shared
