"""How many weights a model has, where they are, and the FLOPs of training on one token."""

from dataclasses import dataclass

from primus_app.config.schema import MlaConfig, ModelConfig, MoeConfig


@dataclass(frozen=True)
class LayerParameters:
    """Weights of one transformer layer; zero for the parts it does not have.

    Attributes:
        attention: projections, their biases and the attention sinks.
        mlp: the dense MLP.
        router: weight and bias of the router; the selection bias is a buffer, not a weight.
        shared_experts: all shared experts together.
        experts: all routed experts together.
        norms: the two norms of the residual stream, the norms of queries and keys, and MLA's latent norms.
        total: the sum of the parts.
    """

    attention: int
    mlp: int
    router: int
    shared_experts: int
    experts: int
    norms: int
    total: int


@dataclass(frozen=True)
class ParameterCount:
    """Weights of a model.

    Attributes:
        total: distinct weights; a tied embedding counts once.
        embedding: the table of input embeddings.
        output: the output projection; 0 when it is tied to the embedding.
        final_norm: the norm before the output projection.
        layers: one entry for each transformer layer.
        active: weights that one token meets: total without the routed experts it is not sent to.
        active_no_embedding: the weights that multiply a token, which is N in 6·N: active, without the lookup in the embedding table
            but with the output projection, also where that is the tied table. torchtitan and gpt-oss's model card count the same way.
    """

    total: int
    embedding: int
    output: int
    final_norm: int
    layers: tuple[LayerParameters, ...]
    active: int
    active_no_embedding: int


def count_parameters(model: ModelConfig) -> ParameterCount:
    """Counts by closed form; equal to the count over transformers' own model of the same config.json."""
    embedding = model.vocab_size * model.hidden_size
    output = 0 if model.tie_word_embeddings else embedding
    layers = tuple(count_layer(model, index) for index in range(model.num_hidden_layers))
    total = embedding + output + model.hidden_size + sum(layer.total for layer in layers)
    active = total - sum(layer.experts - _chosen_experts(layer.experts, model.moe) for layer in layers)
    lookup = 0 if model.tie_word_embeddings else embedding
    return ParameterCount(total, embedding, output, model.hidden_size, layers, active, active - lookup)


def count_layer(model: ModelConfig, index: int) -> LayerParameters:
    """The weights of layer ``index``, counted from 0."""
    hidden = model.hidden_size
    attention = _mla_attention(model, model.mla) if model.mla else _attention(model)
    norms = 2 * hidden + _inner_norms(model)
    mlp = router = shared_experts = experts = 0
    if model.moe is not None and index >= model.moe.first_k_dense_replace:
        router = model.moe.num_experts * (hidden + model.moe.expert_bias_terms)
        shared_experts = model.moe.num_shared_experts * _swiglu(hidden, model.moe.moe_intermediate_size)
        experts = model.moe.num_experts * _expert(hidden, model.moe)
    else:
        mlp = _swiglu(hidden, model.intermediate_size)
    total = attention + mlp + router + shared_experts + experts + norms
    return LayerParameters(attention, mlp, router, shared_experts, experts, norms, total)


def training_flops_per_token(model: ModelConfig, seq_len: int) -> float:
    """Model FLOPs of forward and backward pass on one token, in FLOP; recomputation is not counted.

    ``6·N + attention`` with N = active_no_embedding, PaLM's formula (arXiv 2204.02311, appendix B); see flops.py for other conventions.
    """
    return float(6 * count_parameters(model).active_no_embedding) + attention_flops_per_token(model, seq_len)


def attention_flops_per_token(model: ModelConfig, seq_len: int) -> float:
    """The products of queries, keys and values, forward and backward: ``Σ over layers of 6·heads·(d_qk + d_v)·keys``, in FLOP.

    With d_qk = d_v = head_dim and heads·head_dim = hidden_size this is 12·L·h·s. For MLA d_qk is qk_nope_head_dim + qk_rope_head_dim and
    d_v is v_head_dim, the heads of the attention product, not the latent ranks. ``keys`` is seq_len, as if attention were not causal;
    in a layer with a sliding window it is the window where that is shorter.
    """
    d_qk = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim if model.mla else model.head_dim
    d_v = model.mla.v_head_dim if model.mla else model.head_dim
    keys = sum(_keys_seen(model, index, seq_len) for index in range(model.num_hidden_layers))
    return float(6 * model.num_attention_heads * (d_qk + d_v) * keys)


def slides(model: ModelConfig, index: int) -> bool:
    """Whether layer ``index``, counted from 0, attends through the sliding window."""
    return model.sliding_window is not None and not (model.sliding_window_alternate and index % 2)


def _keys_seen(model: ModelConfig, index: int, seq_len: int) -> int:
    if model.sliding_window is None or not slides(model, index):
        return seq_len
    return min(seq_len, model.sliding_window)


def _attention(model: ModelConfig) -> int:
    query = model.num_attention_heads * model.head_dim
    key_and_value = 2 * model.num_key_value_heads * model.head_dim
    weights = model.hidden_size * (query + key_and_value) + query * model.hidden_size
    qkv_bias = query + key_and_value if model.attention_qkv_bias or model.attention_bias else 0
    output_bias = model.hidden_size if model.attention_bias else 0
    sinks = model.num_attention_heads if model.attention_sinks else 0
    return weights + qkv_bias + output_bias + sinks


def _mla_attention(model: ModelConfig, mla: MlaConfig) -> int:
    hidden, heads = model.hidden_size, model.num_attention_heads
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    query_weights = hidden * query if mla.q_lora_rank is None else mla.q_lora_rank * (hidden + query)
    latent = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    key_and_value = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return query_weights + latent + key_and_value + heads * mla.v_head_dim * hidden


def _inner_norms(model: ModelConfig) -> int:
    if model.mla is not None:
        return (model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank
    return 2 * model.head_dim if model.qk_norm else 0


def _swiglu(hidden: int, intermediate: int) -> int:
    return 3 * hidden * intermediate


def _expert(hidden: int, moe: MoeConfig) -> int:
    biases = 2 * moe.moe_intermediate_size + hidden if moe.expert_bias_terms else 0
    return _swiglu(hidden, moe.moe_intermediate_size) + biases


def _chosen_experts(experts: int, moe: MoeConfig | None) -> int:
    return experts if moe is None else experts // moe.num_experts * moe.num_experts_per_tok
