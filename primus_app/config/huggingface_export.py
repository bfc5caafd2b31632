"""From the keys of ``model`` to a Hugging Face config.json: the way back of ``huggingface.load_huggingface``."""

from collections.abc import Iterator
from typing import Any

from primus_app.config.huggingface import MLA_FAMILIES
from primus_app.config.schema import ModelConfig, MoeConfig, RopeScaling

CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}
"""transformers' class of each family."""

SAME_WORDS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("max_position_embeddings", "rms_norm_eps", "rope_theta", "tie_word_embeddings"),
)
IMPLIED_BIAS = ("qwen2", "mixtral")
"""Families whose configuration in transformers has no attention_bias."""


def config_json(model: ModelConfig, *, dtype: str = "float32", end_of_document: int | None = None) -> dict[str, Any]:
    """What transformers needs to build ``model``, in the words that its releases 4 and 5 and other programs read alike.

    ``dtype`` is torch's name of the stored weights' type; ``end_of_document`` is the token that ends a text. The families' own default
    ids of special tokens belong to other vocabularies, so all are given, as null where there is none.
    """
    return {
        "architectures": [CLASSES[model.family]],
        "model_type": model.family,
        **{name: getattr(model, name) for name in SAME_WORDS},
        **dict(_attention(model)),
        **(_moe(model.family, model.moe) if model.moe else {}),
        "rope_scaling": _rope(model.rope_scaling) if model.rope_scaling else None,
        "hidden_act": "silu",
        "initializer_range": model.init_std,
        "bos_token_id": None,
        "eos_token_id": end_of_document,
        "pad_token_id": None,
        "torch_dtype": dtype,
    }


def _attention(model: ModelConfig) -> Iterator[tuple[str, Any]]:
    family = model.family
    yield "attention_dropout", 0.0
    if family not in IMPLIED_BIAS:
        yield "attention_bias", model.attention_bias
    if model.mla is not None:
        yield from model.mla.model_dump().items()
    if family not in MLA_FAMILIES:
        yield "head_dim", model.head_dim
        yield "sliding_window", model.sliding_window
    if family.startswith("qwen"):
        yield "use_sliding_window", model.sliding_window is not None
        yield "max_window_layers", 0 if model.sliding_window is not None else model.num_hidden_layers
    if family == "gpt_oss":
        yield "layer_types", ["full_attention" if layer % 2 else "sliding_attention" for layer in range(model.num_hidden_layers)]
        yield "swiglu_limit", model.swiglu_limit


def _moe(family: str, moe: MoeConfig) -> dict[str, Any]:
    if family in ("mixtral", "gpt_oss"):
        return {"num_local_experts": moe.num_experts, "num_experts_per_tok": moe.num_experts_per_tok}
    shared = ("num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
    fields: dict[str, Any] = {name: getattr(moe, name) for name in shared}
    if family == "qwen3_moe":
        return {**fields, "num_experts": moe.num_experts, "decoder_sparse_step": 1, "mlp_only_layers": []}
    fields |= {name: getattr(moe, name) for name in ("first_k_dense_replace", "n_group", "topk_group", "topk_method")}
    return {
        **fields,
        "n_routed_experts": moe.num_experts,
        "n_shared_experts": moe.num_shared_experts,
        "scoring_func": moe.score,
        "routed_scaling_factor": moe.routed_scaling_factor,
        "moe_layer_freq": 1,
    }


def _rope(scaling: RopeScaling) -> dict[str, Any]:
    # Null is no number to every reader of mscale; without it, it is transformers' default.
    return scaling.model_dump(exclude_none=True)
