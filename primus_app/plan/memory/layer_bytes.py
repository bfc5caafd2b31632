"""Activation bytes of whole layers of both kinds, for each choice of recomputation."""

from dataclasses import dataclass

from primus_app.plan.memory.arithmetic import choose
from primus_app.plan.memory.attention import fused_attention
from primus_app.plan.memory.experts import fused_experts
from primus_app.plan.memory.layers import StageLayers
from primus_app.plan.memory.mlp import fused_norm, fused_swiglu
from primus_app.plan.memory.widths import Widths, element
from primus_app.plan.workload import Layout, Number, Workload

SELECTIVE, FULL = 1, 2


@dataclass(frozen=True)
class LayerWidths:
    """What one layer of each kind keeps.

    Attributes:
        dense: with a plain MLP; None where the model has no such layer.
        experts: with routed experts; None where it has none.
    """

    dense: Widths | None
    experts: Widths | None


def fused_layer(workload: Workload, *, selective: bool) -> LayerWidths:
    """A layer of Megatron with Transformer Engine, without recomputation or with that of the attention's core."""
    model, moe = workload.model, workload.model.moe
    shared = fused_attention(workload, in_core_recompute=selective) + fused_norm(workload)
    has_dense = moe is None or moe.first_k_dense_replace > 0
    return LayerWidths(
        shared + fused_swiglu(workload, model.intermediate_size) if has_dense else None,
        shared + fused_experts(workload, moe) if moe is not None else None,
    )


def layer_input(workload: Workload) -> Widths:
    """All that full recomputation keeps of a layer; divided over tp under sequence parallelism."""
    return Widths(split=element(workload) * workload.model.hidden_size)


def layer_widths(workload: Workload, *, selective: bool) -> LayerWidths:
    """What a layer keeps under the workload's engine and kernels."""
    return fused_layer(workload, selective=selective)
