"""Activation bytes that the attention of one layer keeps for its backward pass under Megatron with Transformer Engine."""

from primus_app.config.schema import ModelConfig
from primus_app.plan.memory.widths import Widths, element, operand
from primus_app.plan.workload import Workload

FLOAT32 = 4


def query_width(model: ModelConfig) -> int:
    """Elements of a token's queries over all heads."""
    per_head = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim if model.mla else model.head_dim
    return model.num_attention_heads * per_head


def key_width(model: ModelConfig) -> int:
    """Elements of a token's keys as the attention product takes them; MLA expands its latent keys to all heads."""
    return query_width(model) if model.mla else model.num_key_value_heads * model.head_dim


def value_width(model: ModelConfig) -> int:
    """Elements of a token's values as the attention product takes them."""
    return model.num_attention_heads * model.mla.v_head_dim if model.mla else model.num_key_value_heads * model.head_dim


def output_width(model: ModelConfig) -> int:
    """Elements that a token's heads put out together."""
    return model.num_attention_heads * (model.mla.v_head_dim if model.mla else model.head_dim)


def fused_attention(workload: Workload, *, in_core_recompute: bool = False) -> Widths:
    """The norm, the projections and a fused attention product.

    Kept: the norm's input and output (the output is the input of the projections, kept divided under sequence parallelism:
    Korthikanti et al., arXiv 2205.05198, section 4.2.2, and Transformer Engine's LayerNormLinear), then queries, keys and values after
    the rotation, the product's output, which is also the input of the output projection, and one float32 log-sum-exp a head
    (FlashAttention, arXiv 2205.14135). Recomputing the core (``in_core_recompute``) keeps its three inputs all the same, so it
    saves the log-sum-exp alone. Norms of queries and keys keep their input. Context parallelism by all-to-all keeps the output once
    more, before the exchange (Transformer Engine, pytorch/attention/dot_product_attention/context_parallel.py).
    """
    model, wide, narrow = workload.model, element(workload), operand(workload)
    hidden = model.hidden_size
    product = wide * (query_width(model) + key_width(model) + value_width(model) + output_width(model))
    statistics = 0 if in_core_recompute else FLOAT32 * model.num_attention_heads
    copy = output_width(model) if narrow != wide else 0
    exchanged = wide * output_width(model)
    parts = Widths(split=wide * hidden + narrow * hidden, parallel=product + statistics + copy, context=exchanged)
    if model.mla is not None:
        # Each latent's norm keeps its input and its output; the keys' input is a view of all that the down projection gives.
        query, keys = model.mla.q_lora_rank or 0, model.mla.kv_lora_rank
        parts += Widths(split=wide * (query + keys + model.mla.qk_rope_head_dim) + narrow * (query + keys))
    elif model.qk_norm:
        parts += Widths(parallel=wide * (query_width(model) + key_width(model)))
    return parts
