"""What a layer of Megatron's local modules keeps for the backward pass on a CPU; counted on the modules themselves by the tests."""

from primus_app.config.schema import MlaConfig, MoeConfig
from primus_app.plan.memory.attention import key_width, query_width, value_width
from primus_app.plan.memory.plain import FLOAT32, INT64, plain_norm, plain_product
from primus_app.plan.memory.sinks import megatron_sink_product
from primus_app.plan.memory.widths import Widths, element
from primus_app.plan.workload import Workload

ROTATION_TABLES = 4
"""Cosine and sine, once for queries and once for keys, each [seq_len, rotated width] in the format of the activations."""


def plain_attention(workload: Workload, *, in_core_recompute: bool = False) -> Widths:
    """Norm, projections, rotation and product; values are a view of the joint projection, which therefore stays whole."""
    model = workload.model
    product = plain_product(workload, in_core_recompute=in_core_recompute)
    norm = Widths(split=plain_norm(workload, model.hidden_size))
    if model.mla is not None:
        return norm + latents(workload, model.mla) + Widths(parallel=product, position=_tables(workload, model.mla.qk_rope_head_dim))
    wide, joint = element(workload), query_width(model) + key_width(model) + value_width(model)
    if model.attention_sinks and not in_core_recompute:
        return norm + Widths(parallel=megatron_sink_product(workload), position=_tables(workload, model.head_dim))
    kept = product + wide * (joint - value_width(model))
    if model.qk_norm:
        queries = plain_norm(workload, query_width(model), groups=model.num_attention_heads, keeps_output=False)
        keys = plain_norm(workload, key_width(model), groups=model.num_key_value_heads, keeps_output=False)
        # In float32 the keys' norm keeps its input as part of the joint projection.
        kept += queries + keys - (FLOAT32 * key_width(model) if wide == FLOAT32 else 0)
    return norm + Widths(parallel=kept, position=_tables(workload, model.head_dim))


def latents(workload: Workload, mla: MlaConfig) -> Widths:
    """The norms of MLA's latents; that of the keys keeps all that the down projection gives, as a view, where nothing converts it."""
    query = plain_norm(workload, mla.q_lora_rank) if mla.q_lora_rank else 0
    beside = FLOAT32 * mla.qk_rope_head_dim if element(workload) == FLOAT32 else 0
    return Widths(split=query + plain_norm(workload, mla.kv_lora_rank) + beside)


def plain_swiglu(workload: Workload, width: int) -> Widths:
    """Both halves of the first product, the activation, the second half once more (an offset of 0 is added), and their product."""
    return Widths(parallel=5 * element(workload) * width)


def plain_experts(workload: Workload, moe: MoeConfig) -> Widths:
    """Router, shared experts, and experts one after another; the result of each SwiGLU once more, times its probability."""
    wide, width, chosen = element(workload), moe.moe_intermediate_size, moe.num_experts_per_tok
    router = (2 * INT64 + FLOAT32) * chosen + (FLOAT32 + 1) * moe.num_experts
    if moe.score == "sigmoid":
        router += FLOAT32 * moe.num_experts + FLOAT32
    if moe.n_group > 1:
        router += 2 * INT64 * moe.n_group + INT64 * moe.topk_group + moe.num_experts
    copies = 6 if workload.model.swiglu_limit is None else 8  # Both halves once more, within their bound, and the sigmoid beside them.
    routed = Widths(routed=wide * workload.model.hidden_size + FLOAT32, routed_parallel=copies * wide * width)
    return Widths(split=router) + routed + plain_swiglu(workload, moe.num_shared_experts * width)


def _tables(workload: Workload, width: int) -> int:
    return ROTATION_TABLES * element(workload) * width
