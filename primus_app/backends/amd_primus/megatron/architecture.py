"""Megatron's words for a model as those of model.*, and what cannot be said in them."""

import re
from collections.abc import Iterator
from typing import Any

from primus_app.backends.amd_primus.megatron.settings import Settings
from primus_app.config.errors import Problem

PATTERN = re.compile(r"\(?\[0\]\*(\d+)\+\[1\]\*(\d+)\)?")

LLAMA3_ROPE = {"original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
"""Megatron has constants for all but the factor."""

YARN_ROPE = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
"""Primus has no keys for these: Megatron's defaults, as DeepSeek has published them."""

ORIGINAL_POSITIONS = 4096
"""original_max_position_embeddings of Megatron's latent attention where nothing else is said."""

NEEDED: dict[str, tuple[Any, str]] = {
    "normalization": ("RMSNorm", "norms are RMS norms"),
    "swiglu": (True, "MLPs are SwiGLU"),
    "position_embedding_type": ("rope", "positions are rotary"),
    "rotary_percent": (1.0, "positions turn the whole head"),
    "add_bias_linear": (False, "projections have no bias, but for those of queries, keys and values"),
}
"""What every model here has: a key's value, in words."""

DETERMINED: dict[str, tuple[str, ...]] = {
    "family": ("num_experts", "multi_latent_attention", "moe_router_score_function", "qk_layernorm", "add_qkv_bias"),
    "num_hidden_layers": ("num_layers",),
    "hidden_size": ("hidden_size",),
    "num_attention_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_query_groups", "group_query_attention", "multi_latent_attention", "num_attention_heads"),
    "head_dim": ("kv_channels", "qk_pos_emb_head_dim", "multi_latent_attention", "num_attention_heads", "hidden_size"),
    "intermediate_size": ("ffn_hidden_size", "hidden_size"),
    "vocab_size": ("vocab_size",),
    "max_position_embeddings": ("max_position_embeddings",),
    "rope_theta": ("rotary_base",),
    "rope_scaling": (
        *("use_rope_scaling", "rope_scaling_factor", "multi_latent_attention", "rope_type", "rotary_scaling_factor"),
        *("original_max_position_embeddings", "mscale", "mscale_all_dim"),
    ),
    "rms_norm_eps": ("norm_epsilon",),
    "tie_word_embeddings": ("untie_embeddings_and_output_weights",),
    "attention_qkv_bias": ("add_qkv_bias",),
    "qk_norm": ("qk_layernorm", "multi_latent_attention"),
    "init_std": ("init_method_std",),
    "moe": ("num_experts",),
    "moe.num_experts": ("num_experts",),
    "moe.num_experts_per_tok": ("moe_router_topk",),
    "moe.moe_intermediate_size": ("moe_ffn_hidden_size", "ffn_hidden_size"),
    "moe.num_shared_experts": ("moe_shared_expert_intermediate_size", "moe_ffn_hidden_size"),
    "moe.first_k_dense_replace": ("moe_layer_freq",),
    "moe.norm_topk_prob": ("moe_router_pre_softmax", "moe_router_score_function"),
    "moe.score": ("moe_router_score_function",),
    "moe.n_group": ("moe_router_num_groups",),
    "moe.topk_group": ("moe_router_group_topk", "moe_router_num_groups"),
    "moe.topk_method": ("moe_router_num_groups", "moe_router_enable_expert_bias"),
    "moe.routed_scaling_factor": ("moe_router_topk_scaling_factor",),
    "moe.expert_bias": ("moe_router_enable_expert_bias",),
    "mla": ("multi_latent_attention",),
    "mla.q_lora_rank": ("q_lora_rank",),
    "mla.kv_lora_rank": ("kv_lora_rank",),
    "mla.qk_nope_head_dim": ("qk_head_dim",),
    "mla.qk_rope_head_dim": ("qk_pos_emb_head_dim",),
    "mla.v_head_dim": ("v_head_dim",),
}
"""Words of model.*, and the keys of Megatron that they come from, the nearest first."""


def architecture(settings: Settings) -> dict[str, Any]:
    """The words of model.* that Megatron's keys decide; sections are dictionaries, or None. A length that is not said is left out."""
    latent, experts = settings["multi_latent_attention"], settings["num_experts"]
    heads, hidden = settings["num_attention_heads"], settings["hidden_size"]
    groups = settings["num_query_groups"] if settings["group_query_attention"] and not latent else None
    words: dict[str, Any] = {
        "family": _family(settings),
        "num_hidden_layers": settings["num_layers"],
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": groups or heads,
        "head_dim": settings["qk_pos_emb_head_dim"] if latent else settings["kv_channels"] or hidden // heads,
        "intermediate_size": _dense_width(settings),
        "rope_theta": float(settings["rotary_base"]),
        "rope_scaling": _rope(settings),
        "rms_norm_eps": settings["norm_epsilon"],
        "tie_word_embeddings": not settings["untie_embeddings_and_output_weights"],
        "attention_qkv_bias": settings["add_qkv_bias"],
        "attention_bias": False,
        "qk_norm": settings["qk_layernorm"] and not latent,
        "attention_sinks": False,
        "sliding_window": None,
        "sliding_window_alternate": False,
        "swiglu_limit": None,
        "init_std": settings["init_method_std"],
        "moe": _experts(settings) if experts else None,
        "mla": _latent(settings) if latent else None,
    }
    for key in ("vocab_size", "max_position_embeddings"):
        if settings[key] is not None:
            words[key] = settings[key]
    return words


def _family(settings: Settings) -> str:
    """The family here that has these parts."""
    if settings["multi_latent_attention"]:
        return "deepseek_v3" if settings["moe_router_score_function"] == "sigmoid" else "deepseek_v2"
    if settings["num_experts"]:
        return "qwen3_moe" if settings["qk_layernorm"] else "mixtral"
    if settings["qk_layernorm"]:
        return "qwen3"
    return "qwen2" if settings["add_qkv_bias"] else "llama"


def _dense_width(settings: Settings) -> int:
    """Megatron's default is four times the hidden size, two thirds of it for SwiGLU in steps of 64."""
    return int(settings["ffn_hidden_size"] or int(4 * settings["hidden_size"] * 2 / 3 / 64) * 64)


def _rope(settings: Settings) -> dict[str, Any] | None:
    if not settings["multi_latent_attention"]:
        if not settings["use_rope_scaling"]:
            return None
        return {"rope_type": "llama3", "factor": settings["rope_scaling_factor"], **LLAMA3_ROPE}
    if settings["rope_type"] == "rope" or settings["rotary_scaling_factor"] <= 1:
        return None
    return {
        "rope_type": "yarn",
        "factor": float(settings["rotary_scaling_factor"]),
        "original_max_position_embeddings": settings["original_max_position_embeddings"] or ORIGINAL_POSITIONS,
        "mscale": settings["mscale"],
        "mscale_all_dim": settings["mscale_all_dim"],
        **YARN_ROPE,
    }


def _experts(settings: Settings) -> dict[str, Any]:
    width = settings["moe_ffn_hidden_size"] or _dense_width(settings)
    groups, bias = settings["moe_router_num_groups"], settings["moe_router_enable_expert_bias"]
    softmax = settings["moe_router_score_function"] == "softmax"
    return {
        "num_experts": settings["num_experts"],
        "num_experts_per_tok": settings["moe_router_topk"],
        "moe_intermediate_size": width,
        "num_shared_experts": (settings["moe_shared_expert_intermediate_size"] or 0) // width,
        "first_k_dense_replace": dense_layers(settings) or 0,
        # Megatron scales the chosen scores to sum to 1 unless it takes the softmax before it chooses.
        "norm_topk_prob": not (softmax and settings["moe_router_pre_softmax"]),
        "score": settings["moe_router_score_function"],
        "n_group": groups or 1,
        "topk_group": (settings["moe_router_group_topk"] or 1) if groups else 1,
        "topk_method": "noaux_tc" if bias else "group_limited_greedy" if groups else "greedy",
        "routed_scaling_factor": float(settings["moe_router_topk_scaling_factor"] or 1.0),
        "expert_bias": bias,
    }


def _latent(settings: Settings) -> dict[str, Any]:
    return {
        "q_lora_rank": settings["q_lora_rank"],
        "kv_lora_rank": settings["kv_lora_rank"],
        "qk_nope_head_dim": settings["qk_head_dim"],
        "qk_rope_head_dim": settings["qk_pos_emb_head_dim"],
        "v_head_dim": settings["v_head_dim"],
    }


def dense_layers(settings: Settings) -> int | None:
    """The first layers without experts; None for an order of layers that cannot be said here."""
    frequency = settings["moe_layer_freq"]
    if isinstance(frequency, list):
        dense = next((index for index, each in enumerate(frequency) if each), len(frequency))
        return dense if all(frequency[dense:]) else None
    text = str(frequency).replace(" ", "")
    if text in ("1", "[1]"):
        return 0
    found = PATTERN.fullmatch(text)
    return int(found[1]) if found else None


def problems(path: str, settings: Settings) -> Iterator[Problem]:
    """What of the model has no words here."""
    for key, (needed, words) in NEEDED.items():
        if settings[key] != needed:
            advice = f"only {key}: {str(needed).lower() if isinstance(needed, bool) else needed} is told"
            yield Problem(f"{path}: {key}", f"{settings[key]!r}: here {words}", (advice,))
    if not settings["num_experts"]:
        return
    if only_with_latent := list(_only_with_latent(settings)):
        what = f"false: no model here has {', '.join(only_with_latent)} without latent attention"
        fix = ("multi_latent_attention: true is DeepSeek as published", "gpt-oss as published is model=gpt_oss_20b or model=gpt_oss_120b")
        yield Problem(f"{path}: multi_latent_attention", what, fix)
    if dense_layers(settings) is None:
        what = f"{settings['moe_layer_freq']!r}: here layers without experts are the first ones"
        yield Problem(f"{path}: moe_layer_freq", what, ("([0]*2+[1]*30) is two such layers and 30 with experts",))
    width, shared = settings["moe_ffn_hidden_size"] or _dense_width(settings), settings["moe_shared_expert_intermediate_size"] or 0
    if shared % width:
        what = f"{shared} is no multiple of moe_ffn_hidden_size {width}: shared experts have the width of the others here"
        yield Problem(f"{path}: moe_shared_expert_intermediate_size", what, (f"{max(1, round(shared / width)) * width} is the nearest",))


def _only_with_latent(settings: Settings) -> Iterator[str]:
    """Parts of DeepSeek's experts, which Primus' files also put into models without its attention."""
    if settings["multi_latent_attention"]:
        return
    if settings["moe_router_score_function"] == "sigmoid" or settings["moe_router_enable_expert_bias"]:
        yield "routers that score by sigmoid"
    if settings["moe_shared_expert_intermediate_size"]:
        yield "shared experts"
    if dense_layers(settings):
        yield "first layers without experts"
    if settings["moe_router_num_groups"]:
        yield "groups of experts"
