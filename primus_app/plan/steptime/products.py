"""The matrix products of a layer on one rank, by their sizes."""

from dataclasses import dataclass

from primus_app.config.schema import MlaConfig, ModelConfig, MoeConfig
from primus_app.plan.steptime.rates import Rates
from primus_app.plan.steptime.roofline import gemm_s, memory_s
from primus_app.plan.workload import Layout, Number, Workload


@dataclass(frozen=True)
class Linear:
    """``count`` products of ``rows`` x ``inputs`` and ``inputs`` x ``outputs`` in one kernel; ``grouped`` where they are experts'."""

    rows: Number
    outputs: Number
    inputs: Number
    count: Number = 1
    grouped: bool = False


GROUPED = 0.75
"""Rate of a grouped product over that of one of the same sizes: its parts begin and end at different times."""


def attention_linears(model: ModelConfig, tokens: Number, tp: Number) -> tuple[Linear, ...]:
    """The projections before and after attention; MLA's projections to its latent vectors are whole on each tp rank."""
    hidden, heads = model.hidden_size, model.num_attention_heads
    if model.mla is None:
        columns = (heads + 2 * model.num_key_value_heads) * model.head_dim
        return (Linear(tokens, columns / tp, hidden), Linear(tokens, hidden, heads * model.head_dim / tp))
    return _mla(model, model.mla, tokens, tp)


def _mla(model: ModelConfig, mla: MlaConfig, tokens: Number, tp: Number) -> tuple[Linear, ...]:
    hidden, heads = model.hidden_size, model.num_attention_heads
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim) / tp
    rank = mla.q_lora_rank
    queries = (Linear(tokens, query, hidden),) if rank is None else (Linear(tokens, rank, hidden), Linear(tokens, query, rank))
    return (
        *queries,
        Linear(tokens, mla.kv_lora_rank + mla.qk_rope_head_dim, hidden),
        Linear(tokens, heads * (mla.qk_nope_head_dim + mla.v_head_dim) / tp, mla.kv_lora_rank),
        Linear(tokens, hidden, heads * mla.v_head_dim / tp),
    )


def mlp_linears(hidden: int, width: Number, rows: Number, count: Number = 1, *, grouped: bool = False) -> tuple[Linear, ...]:
    """Gate and up projection together, and down."""
    return (Linear(rows, 2 * width, hidden, count, grouped), Linear(rows, hidden, width, count, grouped))


def routed_rows(moe: MoeConfig, tokens: Number, layout: Layout) -> Number:
    """Rows that all experts of a rank work on at balanced routing; the ranks of etp share the same rows."""
    return tokens * moe.num_experts_per_tok * layout.etp / layout.tp


def expert_linears(model: ModelConfig, moe: MoeConfig, tokens: Number, layout: Layout) -> tuple[Linear, ...]:
    """The routed experts of a rank, one product for each in a grouped kernel, and the shared ones as one MLP."""
    local = moe.num_experts / layout.ep
    rows = routed_rows(moe, tokens, layout) / local
    routed = mlp_linears(model.hidden_size, moe.moe_intermediate_size / layout.etp, rows, local, grouped=True)
    if not moe.num_shared_experts:
        return routed
    return routed + mlp_linears(model.hidden_size, moe.num_shared_experts * moe.moe_intermediate_size / layout.tp, tokens)


def linears_s(rates: Rates, workload: Workload, linears: tuple[Linear, ...], *, backward: bool = False) -> Number:
    """Seconds of the products, with those of 8-bit numbers' conversions.

    Backward is two products: for the inputs, and for the weights, which Megatron adds to a float32 sum (8 bytes an element). In 8
    bits each operand is read in 16 and written twice, as it is and transposed (4 bytes an element).
    """
    summed = 8.0 if workload.engine == "megatron" else 2.0
    seconds: Number = 0.0
    for linear in linears:
        m, n, k, count = linear.rows, linear.outputs, linear.inputs, linear.count
        rate = rates.gemm * (GROUPED if linear.grouped and not workload.fused_experts else 1.0)
        seconds = seconds + gemm_s(rates, m, n, k, count=count, flops=rate)
        if backward:
            seconds = seconds + gemm_s(rates, m, n, k, count=count, flops=rate, extra_bytes=summed * n * k)
        if workload.compute == "fp8" and not (linear.grouped and workload.fused_experts):
            seconds = seconds + memory_s(rates, 4.0 * count * m * (n if backward else k))
    return seconds
