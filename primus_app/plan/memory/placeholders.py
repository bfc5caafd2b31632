"""Gradients of weights in the compute format, before they are added to the main ones."""

from primus_app.plan.memory.arithmetic import larger, share
from primus_app.plan.memory.layers import StageLayers
from primus_app.plan.memory.state import dense_layer_parameters, expert_layer_parameters
from primus_app.plan.memory.widths import element
from primus_app.plan.parameters import count_layer
from primus_app.plan.workload import Layout, Number, Workload


def placeholders(workload: Workload, layout: Layout, layers: StageLayers) -> Number:
    """Bytes that Transformer Engine keeps where gradients are fused: one tensor in the compute format for each shape of weight.

    get_dummy_wgrad (Transformer Engine, pytorch/module/base.py) makes one when a shape is first met and never frees it; layers of a kind
    share theirs, and so do the experts of a layer.
    """
    if not (workload.gradient_fusion and workload.fused):
        return 0 * layers.total
    model = workload.model
    first, last = count_layer(model, 0), count_layer(model, model.num_hidden_layers - 1)
    has_dense, has_experts = layers.dense > 0, layers.experts > 0
    attention = share(first.attention, layout.tp)
    found = attention + has_dense * share(first.mlp, layout.tp)
    if model.moe is not None:
        one = expert_layer_parameters(model, last, layout) * layout.ep // model.moe.num_experts
        shared = share(last.shared_experts, layout.tp)
        same = (model.moe.num_shared_experts == 1) * (layout.etp == layout.tp)
        found = found + has_experts * (one + shared * (1 - same))
    return element(workload) * found


def unfused_gradient(workload: Workload, layout: Layout, layers: StageLayers) -> Number:
    """Bytes of the largest weight's own gradient, which lives from its product until it is added to the main one."""
    if workload.gradient_fusion and workload.fused:
        return 0 * layers.total
    model = workload.model
    first, last = count_layer(model, 0), count_layer(model, model.num_hidden_layers - 1)
    largest = (layers.dense > 0) * share(2 * first.mlp // 3, layout.tp)
    if model.moe is not None:
        experts = expert_layer_parameters(model, last, layout)
        each = 2 * experts // 3 if not workload.fused else 2 * experts * layout.ep // model.moe.num_experts // 3
        largest = larger(largest, (layers.experts > 0) * each)
    attention = dense_layer_parameters(model, first, layout) - share(first.mlp + first.shared_experts, layout.tp)
    return element(workload) * larger(largest, attention // 2)
