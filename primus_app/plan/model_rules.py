"""Whether a model agrees with its family and with itself, whatever the layout and the backend."""

from collections.abc import Iterator
from typing import Any

from primus_app.config.errors import Problem
from primus_app.config.schema import MlaConfig, ModelConfig, MoeConfig, RopeScaling
from primus_app.plan.neighbours import divisors, nearest, offer

NONE = (None,)
NO = (False,)
YES = (True,)

_PLAIN: dict[str, tuple[Any, ...]] = {
    "attention_qkv_bias": NO,
    "attention_bias": NO,
    "qk_norm": NO,
    "attention_sinks": NO,
    "sliding_window_alternate": NO,
    "swiglu_limit": NONE,
}
FAMILY_KEYS: dict[str, dict[str, tuple[Any, ...]]] = {
    "llama": {**_PLAIN, "sliding_window": NONE},
    "qwen2": {**_PLAIN, "attention_qkv_bias": YES},
    "qwen3": {**_PLAIN, "qk_norm": YES},
    "qwen3_moe": {**_PLAIN, "qk_norm": YES},
    "mixtral": _PLAIN,
    "deepseek_v2": {**_PLAIN, "sliding_window": NONE},
    "deepseek_v3": {**_PLAIN, "sliding_window": NONE},
    "gpt_oss": {
        "attention_qkv_bias": NO,
        "attention_bias": YES,
        "qk_norm": NO,
        "attention_sinks": YES,
        "sliding_window_alternate": YES,
    },
}
"""The values that a family's architecture allows, from transformers' model classes; a key that is not here is free."""

GPT_OSS_NUMBERS = {"sliding_window": 128, "swiglu_limit": 7.0}
"""Keys that gpt_oss cannot do without, with the published value."""

_PLAIN_MOE: dict[str, tuple[Any, ...]] = {
    "num_shared_experts": (0,),
    "first_k_dense_replace": (0,),
    "score": ("softmax",),
    "topk_method": ("greedy",),
    "routed_scaling_factor": (1.0,),
    "expert_bias_terms": NO,
}
FAMILY_MOE_KEYS: dict[str, dict[str, tuple[Any, ...]]] = {
    "qwen3_moe": _PLAIN_MOE,
    "mixtral": {**_PLAIN_MOE, "norm_topk_prob": YES},
    "deepseek_v2": {
        "score": ("softmax",),
        "topk_method": ("greedy", "group_limited_greedy"),
        "norm_topk_prob": NO,
        "expert_bias_terms": NO,
    },
    "deepseek_v3": {"score": ("sigmoid",), "topk_method": ("noaux_tc",), "expert_bias": YES, "expert_bias_terms": NO},
    "gpt_oss": {**_PLAIN_MOE, "norm_topk_prob": YES, "expert_bias_terms": YES},
}
"""The same for the keys of ``moe``; the families here are those with experts."""

MLA_FAMILIES = ("deepseek_v2", "deepseek_v3")
ONE_WIDTH_FAMILIES = ("mixtral", "gpt_oss")
"""Families whose config.json has one width for the MLP and the experts."""

ROPE_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "llama3": (("low_freq_factor", "high_freq_factor"), ()),
    "yarn": (("beta_fast", "beta_slow", "truncate"), ("mscale", "mscale_all_dim")),
    "linear": ((), ()),
}
"""Keys beyond the factor and the original context: those a rule needs, and those it may have."""

ROPE_PUBLISHED = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}


def check_model(model: ModelConfig) -> list[Problem]:
    """Everything that is wrong with the architecture itself; empty when it is sound."""
    problems = [*_family(model), *_blocks(model), *_heads(model)]
    if model.moe is not None:
        problems += [*_moe_family(model, model.moe), *_experts(model, model.moe), *_routing(model.moe)]
    if model.mla is not None:
        problems += _mla(model, model.mla)
    if model.rope_scaling is not None:
        problems += _rope(model, model.rope_scaling)
    return problems


def _family(model: ModelConfig) -> Iterator[Problem]:
    for key, allowed in FAMILY_KEYS[model.family].items():
        yield from _fixed(f"model.{key}", getattr(model, key), allowed, model.family, _families_with(FAMILY_KEYS, key, getattr(model, key)))
    if model.family == "gpt_oss":
        for key, published in GPT_OSS_NUMBERS.items():
            if getattr(model, key) is None:
                yield Problem(
                    f"model.{key}", "null, but family gpt_oss needs it", (f"give a number; the published models have {published}",)
                )


def _blocks(model: ModelConfig) -> Iterator[Problem]:
    yield from _block("moe", "experts", model.moe is not None, model.family, tuple(FAMILY_MOE_KEYS))
    yield from _block("mla", "latent attention", model.mla is not None, model.family, MLA_FAMILIES)


def _block(key: str, thing: str, present: bool, family: str, families: tuple[str, ...]) -> Iterator[Problem]:
    if present and family not in families:
        yield Problem(f"model.{key}", f"given, but family {family} has no {thing}", (f"families that have: {', '.join(families)}",))
    if not present and family in families:
        yield Problem(
            f"model.{key}",
            f"null, but family {family} has {thing}",
            (f"start from a model of the family in conf/model/, which has every key of model.{key}",),
        )


def _moe_family(model: ModelConfig, moe: MoeConfig) -> Iterator[Problem]:
    for key, allowed in FAMILY_MOE_KEYS.get(model.family, {}).items():
        value = getattr(moe, key)
        yield from _fixed(f"model.moe.{key}", value, allowed, model.family, _families_with(FAMILY_MOE_KEYS, key, value))
    if model.family in ONE_WIDTH_FAMILIES and moe.moe_intermediate_size != model.intermediate_size:
        yield Problem(
            "model.moe.moe_intermediate_size",
            f"{moe.moe_intermediate_size}, but family {model.family} has one width, and intermediate_size is {model.intermediate_size}",
            (f"model.intermediate_size={moe.moe_intermediate_size}", f"or model.moe.moe_intermediate_size={model.intermediate_size}"),
        )


def _heads(model: ModelConfig) -> Iterator[Problem]:
    heads, groups = model.num_attention_heads, model.num_key_value_heads
    if heads % groups:
        yield Problem(
            "model.num_key_value_heads",
            f"{groups} does not divide the {heads} of model.num_attention_heads",
            offer("model.num_key_value_heads", nearest(divisors(heads), groups)),
        )
    if model.mla is None:
        yield from _even("model.head_dim", model.head_dim)


def _mla(model: ModelConfig, mla: MlaConfig) -> Iterator[Problem]:
    yield from _even("model.mla.qk_rope_head_dim", mla.qk_rope_head_dim)
    if model.head_dim != mla.qk_rope_head_dim:
        yield Problem(
            "model.head_dim",
            f"{model.head_dim}, but with latent attention it is model.mla.qk_rope_head_dim, which is {mla.qk_rope_head_dim}",
            (f"model.head_dim={mla.qk_rope_head_dim}",),
        )
    if model.num_key_value_heads != model.num_attention_heads:
        yield Problem(
            "model.num_key_value_heads",
            f"{model.num_key_value_heads}, but latent attention has one key for each of the {model.num_attention_heads} query heads",
            (f"model.num_key_value_heads={model.num_attention_heads}",),
        )


def _experts(model: ModelConfig, moe: MoeConfig) -> Iterator[Problem]:
    if moe.num_experts_per_tok > moe.num_experts:
        yield Problem(
            "model.moe.num_experts_per_tok",
            f"a token cannot be sent to {moe.num_experts_per_tok} of {moe.num_experts} experts",
            (f"at most model.moe.num_experts_per_tok={moe.num_experts}",),
        )
    if moe.first_k_dense_replace > model.num_hidden_layers:
        yield Problem(
            "model.moe.first_k_dense_replace",
            f"{moe.first_k_dense_replace} dense layers, but model.num_hidden_layers is {model.num_hidden_layers}",
            (f"at most model.moe.first_k_dense_replace={model.num_hidden_layers}",),
        )


def _routing(moe: MoeConfig) -> Iterator[Problem]:
    if moe.topk_method == "greedy":
        yield from (
            Problem(f"model.moe.{key}", f"{value} has no effect: topk_method greedy chooses over all experts", (f"model.moe.{key}=1",))
            for key, value in (("n_group", moe.n_group), ("topk_group", moe.topk_group))
            if value != 1
        )
        return
    if moe.topk_method == "noaux_tc" and not moe.expert_bias:
        yield Problem(
            "model.moe.expert_bias", "false, but topk_method noaux_tc chooses with a selection bias", ("model.moe.expert_bias=true",)
        )
    if moe.topk_group > moe.n_group:
        yield Problem(
            "model.moe.topk_group",
            f"a token cannot choose from {moe.topk_group} of {moe.n_group} groups",
            (f"at most model.moe.topk_group={moe.n_group}",),
        )
    if moe.num_experts % moe.n_group:
        yield Problem(
            "model.moe.n_group",
            f"{moe.n_group} groups do not divide {moe.num_experts} experts evenly",
            offer("model.moe.n_group", nearest(divisors(moe.num_experts), moe.n_group)),
        )
    else:
        yield from _group_size(moe, moe.num_experts // moe.n_group)


def _group_size(moe: MoeConfig, size: int) -> Iterator[Problem]:
    # noaux_tc scores a group by its two best experts (arXiv 2412.19437, section 2.1.2).
    if moe.topk_method == "noaux_tc" and size < 2:
        yield Problem(
            "model.moe.n_group",
            f"{moe.n_group} groups of {moe.num_experts} experts have one each, and noaux_tc compares the two best of a group",
            offer("model.moe.n_group", nearest(divisors(moe.num_experts)[:-1], moe.n_group)),
        )
    reachable = min(moe.topk_group, moe.n_group) * size
    if reachable < moe.num_experts_per_tok <= moe.num_experts:
        needed = -(-moe.num_experts_per_tok // size)
        yield Problem(
            "model.moe.topk_group",
            f"{moe.topk_group} groups of {size} experts are {reachable}, fewer than the {moe.num_experts_per_tok} of num_experts_per_tok",
            (f"at least model.moe.topk_group={needed}", f"or at most model.moe.num_experts_per_tok={reachable}"),
        )


def _rope(model: ModelConfig, rope: RopeScaling) -> Iterator[Problem]:
    needed, optional = ROPE_KEYS[rope.rope_type]
    for key in needed:
        if getattr(rope, key) is None:
            yield Problem(
                f"model.rope_scaling.{key}",
                f"null, but {rope.rope_type} needs it",
                (f"published models have {_text(ROPE_PUBLISHED[key])}",),
            )
    for key in (key for rule in ROPE_KEYS.values() for keys in rule for key in keys if key not in (*needed, *optional)):
        if getattr(rope, key) is not None:
            yield Problem(
                f"model.rope_scaling.{key}", f"has no effect with rope_type {rope.rope_type}", (f"model.rope_scaling.{key}=null",)
            )
    for low, high in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        below, above = getattr(rope, low), getattr(rope, high)
        if below is not None and above is not None and below >= above:
            yield Problem(
                f"model.rope_scaling.{low}", f"{below:g} is not below {high}, which is {above:g}", (f"exchange them, or lower {low}",)
            )
    if rope.original_max_position_embeddings > model.max_position_embeddings:
        yield Problem(
            "model.rope_scaling.original_max_position_embeddings",
            f"{rope.original_max_position_embeddings} is longer than the {model.max_position_embeddings} of model.max_position_embeddings",
            ("the original context is the shorter one",),
        )


def _fixed(where: str, value: Any, allowed: tuple[Any, ...], family: str, families: list[str]) -> Iterator[Problem]:
    if value in allowed:
        return
    legal = " or ".join(_text(one) for one in allowed)
    elsewhere = (f"or a family with {_text(value)}: {', '.join(families)}",) if families else ()
    yield Problem(where, f"{_text(value)}, but family {family} has {legal}", (f"{where}={_text(allowed[0])}", *elsewhere))


def _families_with(table: dict[str, dict[str, tuple[Any, ...]]], key: str, value: Any) -> list[str]:
    return [family for family, keys in table.items() if key not in keys or value in keys[key]]


def _even(where: str, value: int) -> Iterator[Problem]:
    if value % 2:
        yield Problem(
            where,
            f"{value} is odd, and rotary positions turn pairs of dimensions",
            offer(where, nearest([value - 1, value + 1], value, lambda even: even > 0)),
        )


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower()
