"""Forward and backward pass of one micro batch through one layer, and through the output layer with the loss, on one rank."""

import numpy as np

from primus_app.plan.parameters import slides
from primus_app.plan.steptime.elementwise import elementwise_s, loss_s
from primus_app.plan.steptime.exchanges import cp_s, ep_s, tp_s
from primus_app.plan.steptime.passes import Pass
from primus_app.plan.steptime.products import attention_linears, expert_linears, linears_s, mlp_linears
from primus_app.plan.steptime.rates import Rates
from primus_app.plan.steptime.roofline import attention_s, gemm_s, scores_s
from primus_app.plan.workload import RECOMPUTE, Layout, Number, Workload, recomputed_share


def tokens_of(workload: Workload, layout: Layout) -> Number:
    """Tokens of a micro batch that a tensor parallel group works on."""
    return layout.micro_batch_size * workload.seq_len / layout.cp


def layer_passes(rates: Rates, workload: Workload, layout: Layout, *, experts: bool) -> tuple[Pass, Pass]:
    """Forward and backward pass of a layer with routed experts or without; the backward one with what it computes again."""
    forward = _pass(rates, workload, layout, experts=experts, backward=False)
    backward = _pass(rates, workload, layout, experts=experts, backward=True)
    full = forward.times(np.where(layout.recompute == RECOMPUTE.index("full"), recomputed_share(workload, layout), 0.0))
    partly = _selective(workload, forward).times(np.where(layout.recompute == RECOMPUTE.index("selective"), 1.0, 0.0))
    return forward, backward + full + partly


def output_passes(rates: Rates, workload: Workload, layout: Layout) -> tuple[Pass, Pass]:
    """Forward and backward pass of the output projection and the cross entropy; the projection stays in 16 bits under fp8."""
    tokens, hidden = tokens_of(workload, layout), workload.model.hidden_size
    product = gemm_s(rates, tokens, workload.padded_vocab / layout.tp, hidden, flops=rates.gemm_bf16)
    forward, backward = (
        Pass(
            products=passes * product,
            memory=loss_s(rates, workload, tokens, layout.tp, backward=back),
            tp=tp_s(rates, workload, layout, tokens, 0.5, passes * product, backward=back),
        )
        for passes, back in ((1, False), (2, True))
    )
    return forward, backward


def _pass(rates: Rates, workload: Workload, layout: Layout, *, experts: bool, backward: bool) -> Pass:
    model, tokens = workload.model, tokens_of(workload, layout)
    moe = model.moe if experts else None
    linears = attention_linears(model, tokens, layout.tp)
    linears += (
        mlp_linears(model.hidden_size, model.intermediate_size / layout.tp, tokens)
        if moe is None
        else expert_linears(model, moe, tokens, layout)
    )
    products = linears_s(rates, workload, linears, backward=backward)
    attention = _attention(rates, workload, layout, tokens, backward=backward)
    memory = elementwise_s(rates, workload, layout, tokens, experts=experts, backward=backward)
    blocks = 2.0 if moe is None or moe.num_shared_experts else 1.0
    return Pass(
        products=products,
        attention=attention,
        memory=memory,
        tp=tp_s(rates, workload, layout, tokens, blocks, products, backward=backward),
        cp=cp_s(rates, workload, layout, tokens, attention, backward=backward),
        ep=0.0 if moe is None else ep_s(rates, workload, moe, layout, tokens, products + attention + memory),
    )


def _attention(rates: Rates, workload: Workload, layout: Layout, tokens: Number, *, backward: bool) -> Number:
    """Causal attention; context parallel ranks have early and late parts of a sequence each, so all do the same."""
    model = workload.model
    heads = model.num_attention_heads / layout.tp
    d_qk = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim if model.mla else model.head_dim
    d_v = model.mla.v_head_dim if model.mla else model.head_dim
    if workload.attention != "unfused":
        return attention_s(rates, tokens, _mean_keys(workload), heads, d_qk, d_v, backward=backward)
    keys = workload.seq_len
    product = gemm_s(rates, keys, keys, d_qk, count=tokens / keys * heads, flops=rates.gemm_bf16)
    return (4 if backward else 2) * product + scores_s(rates, tokens * keys * heads, backward=backward)


def _mean_keys(workload: Workload) -> float:
    """Keys that a query sees on average over its position and over the layers: half of all, or what a window leaves of them."""
    model, length = workload.model, workload.seq_len
    window = min(model.sliding_window or length, length)
    inside = window * (1 - window / (2 * length))
    sliding = sum(slides(model, index) for index in range(model.num_hidden_layers))
    return (sliding * inside + (model.num_hidden_layers - sliding) * length / 2) / model.num_hidden_layers


def _selective(workload: Workload, forward: Pass) -> Pass:
    """What selective recomputation does again: Megatron's attention between its projections; TorchTitan's every other product and all
    that is bound by memory, without attention and communication, whose results are kept."""
    if workload.engine == "megatron":
        return Pass(attention=forward.attention)
    return Pass(products=0.5 * forward.products, memory=forward.memory)
