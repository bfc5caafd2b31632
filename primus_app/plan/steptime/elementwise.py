"""Bytes that the operations bound by memory move in a layer, in numbers of 2 bytes."""

from primus_app.plan.steptime.products import routed_rows
from primus_app.plan.steptime.rates import Rates
from primus_app.plan.steptime.roofline import memory_s
from primus_app.plan.workload import Layout, Number, Workload

UNFUSED = 1.63
"""How many times the traffic without fusion: each operation reads and writes what a fused kernel keeps, partly in float32."""


MORE_KERNELS = 4
"""How many times the kernels without fusion."""
CLIPPED = 4.1
"""How many times the traffic of SwiGLU when it clips its inputs, for which neither engine has a fused kernel."""
SORTING_BYTES = 16.0
"""Bytes moved for each element of a token on its way to an expert and back: into order, into and out of the buffers that are sent, back."""
SORTING_KERNELS = 185
"""Kernels of a layer with experts besides its products: router, top-k, counts, permutation and its inverse."""


def elementwise_s(rates: Rates, workload: Workload, layout: Layout, tokens: Number, *, experts: bool, backward: bool = False) -> Number:
    """Seconds of norms, residuals, rotary embedding, SwiGLU and, with experts, of sorting the tokens.

    Forward: a norm reads and writes (4 bytes an element), a residual reads two and writes one (6); rotary embedding 4; SwiGLU reads two
    and writes one (6). Backward: a norm reads two and writes one (6), a residual 6, rotary embedding 4, SwiGLU reads three and writes
    two (10). Sorting: SORTING_BYTES.
    """
    model = workload.model
    hidden = model.hidden_size * tokens / _split(layout)
    heads = (model.num_attention_heads + model.num_key_value_heads) * model.head_dim * tokens / layout.tp
    stream = (24.0 if backward else 20.0) * hidden
    rotary = 4.0 * heads * (2 if model.qk_norm else 1)
    gate = (10.0 if backward else 6.0) * tokens
    if model.moe is None or not experts:
        num_bytes, kernels = stream + rotary + gate * model.intermediate_size / layout.tp, 8
    else:
        rows = routed_rows(model.moe, tokens, layout)
        shared = tokens * model.moe.num_shared_experts / layout.tp
        width = model.moe.moe_intermediate_size
        wide = (10.0 if backward else 6.0) * width * (rows / layout.etp + shared)
        if workload.fused_experts:
            wide = 0.0
        elif model.swiglu_limit is not None:
            wide = wide * CLIPPED
        kernels = 8 if workload.graphs else SORTING_KERNELS
        num_bytes = stream + rotary + wide + SORTING_BYTES * rows * model.hidden_size
    return _moved_s(rates, workload, num_bytes, kernels)


def loss_s(rates: Rates, workload: Workload, tokens: Number, tp: Number, *, backward: bool = False) -> Number:
    """Seconds of the cross entropy: forward reads logits in 2 bytes and keeps them in 4 (10 in all); backward reads them and writes 2."""
    logits = tokens * workload.padded_vocab / tp
    return _moved_s(rates, workload, (8.0 if backward else 10.0) * logits, 4)


def _moved_s(rates: Rates, workload: Workload, num_bytes: Number, kernels: float) -> Number:
    if workload.compiled:
        return memory_s(rates, num_bytes, kernels)
    return memory_s(rates, UNFUSED * num_bytes, MORE_KERNELS * kernels)


def _split(layout: Layout) -> Number:
    """Ranks that norms and residuals are divided over: tp with sequence parallelism, or 1."""
    return 1 + (layout.tp - 1) * layout.sequence_parallel
