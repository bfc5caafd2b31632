"""The weights of a model under their names in a Hugging Face checkpoint on disk: the common tongue of backends and files."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import Literal

from primus_app.config.schema import MlaConfig, ModelConfig, MoeConfig

Kind = Literal["normal", "residual_output", "ones", "zeros"]
"""How a seeded weight starts: normal with init_std, the same over sqrt(2 num_hidden_layers), 1, or 0."""


@dataclass(frozen=True)
class HfParameter:
    """One tensor of the checkpoint; experts are one tensor each, as on disk (gpt_oss keeps them fused there)."""

    name: str
    shape: tuple[int, ...]
    kind: Kind

    @property
    def size(self) -> int:
        return prod(self.shape)


def hf_parameters(model: ModelConfig) -> Iterator[HfParameter]:
    """Every weight of ``model`` in order; buffers (see ``hf_buffers``) and a tied output layer are not weights."""
    yield HfParameter("model.embed_tokens.weight", (model.vocab_size, model.hidden_size), "normal")
    for layer in range(model.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        yield from _attention(model, prefix + "self_attn.")
        yield from _feed_forward(model, layer, prefix)
        yield _norm(prefix + "input_layernorm", model.hidden_size)
        yield _norm(prefix + "post_attention_layernorm", model.hidden_size)
    yield _norm("model.norm", model.hidden_size)
    if not model.tie_word_embeddings:
        yield HfParameter("lm_head.weight", (model.vocab_size, model.hidden_size), "normal")


def hf_buffers(model: ModelConfig) -> Iterator[HfParameter]:
    """What a checkpoint holds beside the weights: the selection bias of each router, by training.load_balancing, not by gradients."""
    if model.moe is not None and model.moe.expert_bias:
        for layer in range(model.moe.first_k_dense_replace, model.num_hidden_layers):
            yield HfParameter(f"model.layers.{layer}.mlp.gate.e_score_correction_bias", (model.moe.num_experts,), "zeros")


def initial_std(model: ModelConfig, kind: Kind) -> float:
    """Standard deviation of the weights of this kind at the start; 0 for constants."""
    if kind == "normal":
        return model.init_std
    return model.init_std / sqrt(2 * model.num_hidden_layers) if kind == "residual_output" else 0.0


def _norm(name: str, size: int) -> HfParameter:
    return HfParameter(f"{name}.weight", (size,), "ones")


def _linear(name: str, rows: int, columns: int, *, bias: bool = False, kind: Kind = "normal") -> Iterator[HfParameter]:
    yield HfParameter(f"{name}.weight", (rows, columns), kind)
    if bias:
        yield HfParameter(f"{name}.bias", (rows,), "zeros")


def _attention(model: ModelConfig, prefix: str) -> Iterator[HfParameter]:
    if model.mla is not None:
        yield from _latent_attention(model, model.mla, prefix)
        return
    if model.attention_sinks:
        yield HfParameter(prefix + "sinks", (model.num_attention_heads,), "normal")
    hidden, queries = model.hidden_size, model.num_attention_heads * model.head_dim
    keys = model.num_key_value_heads * model.head_dim
    qkv_bias = model.attention_qkv_bias or model.attention_bias
    yield from _linear(prefix + "q_proj", queries, hidden, bias=qkv_bias)
    yield from _linear(prefix + "k_proj", keys, hidden, bias=qkv_bias)
    yield from _linear(prefix + "v_proj", keys, hidden, bias=qkv_bias)
    yield from _linear(prefix + "o_proj", hidden, queries, bias=model.attention_bias, kind="residual_output")
    if model.qk_norm:
        yield _norm(prefix + "q_norm", model.head_dim)
        yield _norm(prefix + "k_norm", model.head_dim)


def _latent_attention(model: ModelConfig, mla: MlaConfig, prefix: str) -> Iterator[HfParameter]:
    hidden, heads = model.hidden_size, model.num_attention_heads
    queries = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank is None:
        yield from _linear(prefix + "q_proj", queries, hidden)
    else:
        yield from _linear(prefix + "q_a_proj", mla.q_lora_rank, hidden, bias=model.attention_bias)
        yield _norm(prefix + "q_a_layernorm", mla.q_lora_rank)
        yield from _linear(prefix + "q_b_proj", queries, mla.q_lora_rank)
    yield from _linear(prefix + "kv_a_proj_with_mqa", mla.kv_lora_rank + mla.qk_rope_head_dim, hidden, bias=model.attention_bias)
    yield _norm(prefix + "kv_a_layernorm", mla.kv_lora_rank)
    yield from _linear(prefix + "kv_b_proj", heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank)
    yield from _linear(prefix + "o_proj", hidden, heads * mla.v_head_dim, bias=model.attention_bias, kind="residual_output")


def _feed_forward(model: ModelConfig, layer: int, prefix: str) -> Iterator[HfParameter]:
    if model.moe is None or layer < model.moe.first_k_dense_replace:
        yield from _mlp(prefix + "mlp.", model.hidden_size, model.intermediate_size)
    elif model.family == "gpt_oss":
        yield from _fused_experts(model.moe, model.hidden_size, prefix + "mlp.")
    else:
        yield from _experts(model, model.moe, prefix)


def _mlp(
    prefix: str, hidden: int, width: int, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
) -> Iterator[HfParameter]:
    gate, up, down = names
    yield from _linear(prefix + gate, width, hidden)
    yield from _linear(prefix + up, width, hidden)
    yield from _linear(prefix + down, hidden, width, kind="residual_output")


def _experts(model: ModelConfig, moe: MoeConfig, prefix: str) -> Iterator[HfParameter]:
    mixtral = model.family == "mixtral"
    block = prefix + ("block_sparse_moe." if mixtral else "mlp.")
    names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    yield from _linear(block + "gate", moe.num_experts, model.hidden_size)
    for expert in range(moe.num_experts):
        yield from _mlp(f"{block}experts.{expert}.", model.hidden_size, moe.moe_intermediate_size, names)
    if moe.num_shared_experts:
        yield from _mlp(block + "shared_experts.", model.hidden_size, moe.num_shared_experts * moe.moe_intermediate_size)


def _fused_experts(moe: MoeConfig, hidden: int, prefix: str) -> Iterator[HfParameter]:
    experts, width = moe.num_experts, moe.moe_intermediate_size
    yield from _linear(prefix + "router", experts, hidden, bias=moe.expert_bias_terms)
    yield HfParameter(prefix + "experts.gate_up_proj", (experts, hidden, 2 * width), "normal")
    yield HfParameter(prefix + "experts.down_proj", (experts, width, hidden), "residual_output")
    if moe.expert_bias_terms:
        yield HfParameter(prefix + "experts.gate_up_proj_bias", (experts, 2 * width), "zeros")
        yield HfParameter(prefix + "experts.down_proj_bias", (experts, hidden), "zeros")
