"""Activation bytes of whole layers of both kinds, for each choice of recomputation."""

from dataclasses import dataclass

from primus_app.plan.memory.attention import fused_attention
from primus_app.plan.memory.experts import fused_experts
from primus_app.plan.memory.megatron_plain import plain_attention, plain_experts, plain_swiglu
from primus_app.plan.memory.mlp import fused_norm, fused_swiglu
from primus_app.plan.memory.plain import plain_norm
from primus_app.plan.memory.titan import titan_attention, titan_experts, titan_mlp, titan_saved
from primus_app.plan.memory.widths import Widths, element
from primus_app.plan.workload import Workload

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
    return LayerWidths(
        shared + fused_swiglu(workload, model.intermediate_size) if _has_dense(workload) else None,
        shared + fused_experts(workload, moe) if moe is not None else None,
    )


def layer_input(workload: Workload) -> Widths:
    """All that full recomputation keeps of a layer; divided over tp under sequence parallelism."""
    return Widths(split=element(workload) * workload.model.hidden_size)


def final_norm(workload: Workload) -> Widths:
    """The norm before the output projection, and its output as the input of that."""
    hidden = workload.model.hidden_size
    return Widths(split=2 * element(workload) * hidden if workload.fused else plain_norm(workload, hidden))


def plain_layer(workload: Workload, *, selective: bool) -> LayerWidths:
    """A layer of Megatron's local modules, without recomputation or with that of the attention's core."""
    model, moe = workload.model, workload.model.moe
    shared = plain_attention(workload, in_core_recompute=selective) + Widths(split=plain_norm(workload, model.hidden_size))
    return LayerWidths(
        shared + plain_swiglu(workload, model.intermediate_size) if _has_dense(workload) else None,
        shared + plain_experts(workload, moe) if moe is not None else None,
    )


def titan_layer(workload: Workload, *, selective: bool) -> LayerWidths:
    """A layer of TorchTitan, without recomputation or with its policy by operations."""
    moe = workload.model.moe
    if selective:
        dense, experts = (titan_saved(workload, experts=has) for has in (False, True))
    else:
        attention = titan_attention(workload)
        dense = attention + titan_mlp(workload)
        experts = attention + titan_experts(workload, moe) if moe is not None else attention
    return LayerWidths(dense if _has_dense(workload) else None, experts if moe is not None else None)


def layer_widths(workload: Workload, *, selective: bool) -> LayerWidths:
    """What a layer keeps under the workload's engine and kernels."""
    if workload.engine == "torchtitan":
        return titan_layer(workload, selective=selective)
    return fused_layer(workload, selective=selective) if workload.fused else plain_layer(workload, selective=selective)


def _has_dense(workload: Workload) -> bool:
    return workload.model.moe is None or workload.model.moe.first_k_dense_replace > 0
