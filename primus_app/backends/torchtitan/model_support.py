"""Which models torchtitan 0.3.0 cannot represent, said before it is imported, so that nothing is silently ignored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from primus_app.config.errors import Problem
from primus_app.config.schema import ModelConfig, MoeConfig, RopeScaling

Part = Literal["never", "always", "optional"]


@dataclass(frozen=True)
class FamilySupport:
    """What TorchTitan's model of a family has: ``rope`` are the kinds of stretching, ``moe`` and ``mla`` the parts.

    ``always`` are the keys of ABSENT that it cannot do without.
    """

    rope: frozenset[str]
    tied_embeddings: bool
    qk_norm: bool
    moe: Part
    mla: Part
    shared_experts: bool = False
    selection_bias: bool = False
    any_head_dim: bool = True
    always: frozenset[str] = frozenset()


GPT_OSS = frozenset({"attention_bias", "attention_sinks", "sliding_window", "sliding_window_alternate", "swiglu_limit"})

SUPPORT: dict[str, FamilySupport] = {
    "llama": FamilySupport(frozenset({"llama3"}), True, False, "never", "never", any_head_dim=False),
    "qwen3": FamilySupport(frozenset(), True, True, "never", "never"),
    "qwen3_moe": FamilySupport(frozenset(), True, True, "always", "never"),
    "deepseek_v2": FamilySupport(frozenset({"yarn"}), False, False, "optional", "always", shared_experts=True),
    "deepseek_v3": FamilySupport(frozenset({"yarn"}), False, False, "optional", "always", shared_experts=True, selection_bias=True),
    "gpt_oss": FamilySupport(frozenset({"yarn"}), False, False, "always", "never", always=GPT_OSS),
}
"""Families whose Hugging Face models TorchTitan's compute exactly; the others are refused."""

ROPE_FIELDS: dict[str, frozenset[str]] = {
    "llama3": frozenset({"low_freq_factor", "high_freq_factor"}),
    "yarn": frozenset({"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}),
    "linear": frozenset(),
}
"""Fields of model.rope_scaling that mean something for each rope_type."""

ABSENT: dict[str, str] = {
    "attention_qkv_bias": "biases on the query, key and value projections",
    "attention_bias": "biases on the attention projections",
    "attention_sinks": "attention sinks",
    "sliding_window": "sliding attention windows",
    "sliding_window_alternate": "sliding attention windows",
    "swiglu_limit": "a bound on SwiGLU's inputs",
}
"""Fields of model that a family has always or never in TorchTitan, and what they are."""


def check_model_support(model: ModelConfig, *, pp: int = 1) -> list[Problem]:
    """Everything about ``model`` that TorchTitan would get wrong or leave out, with ``pp`` pipeline stages."""
    support = SUPPORT.get(model.family)
    if support is None:
        families = ", ".join(SUPPORT)
        what = f"TorchTitan 0.3.0 has no model that computes what {model.family} does."
        return [Problem("model.family", what, (f"Choose a model of one of the families {families}.",))]
    return [
        *_features(model, support),
        *_parts(model, support),
        *_attention(model, support),
        *_embeddings(model, support, pp),
        *_rope(model, support),
        *_experts(model, support),
    ]


def _features(model: ModelConfig, support: FamilySupport) -> Iterator[Problem]:
    for field, what in ABSENT.items():
        given = getattr(model, field) not in (None, False)
        if field in support.always and not given:
            yield _unsupported(model, field, f"always has {what}", f"Give model.{field}, or choose a family without it.")
        elif given and field not in support.always:
            nothing = "null" if getattr(model, field) is not True else "false"
            yield _unsupported(model, field, f"has no {what}", f"Set model.{field}={nothing}.")


def _parts(model: ModelConfig, support: FamilySupport) -> Iterator[Problem]:
    parts: tuple[tuple[str, Part, str], ...] = (("moe", support.moe, "mixture of experts"), ("mla", support.mla, "latent attention"))
    for field, part, what in parts:
        given = getattr(model, field) is not None
        if given and part == "never":
            yield _unsupported(model, field, f"has no {what}", f"Set model.{field}=null, or choose a family that has one.")
        if not given and part == "always":
            yield _unsupported(model, field, f"always has {what}", f"Give model.{field}, or choose a family without it.")


def _attention(model: ModelConfig, support: FamilySupport) -> Iterator[Problem]:
    if model.qk_norm != support.qk_norm:
        how = "always normalises" if support.qk_norm else "never normalises"
        yield _unsupported(model, "qk_norm", f"{how} queries and keys", f"Set model.qk_norm={str(support.qk_norm).lower()}.")
    if model.mla is not None:
        if model.num_key_value_heads != model.num_attention_heads:
            what = f"has as many key and value heads as query heads, {model.num_attention_heads}, not {model.num_key_value_heads}"
            yield _unsupported(model, "num_key_value_heads", what, f"Set model.num_key_value_heads={model.num_attention_heads}.")
        return
    if model.num_attention_heads % model.num_key_value_heads:
        what = f"divides {model.num_attention_heads} query heads evenly among key and value heads, not among {model.num_key_value_heads}"
        yield _unsupported(model, "num_key_value_heads", what, f"Choose a divisor of {model.num_attention_heads}.")
    if not support.any_head_dim and model.head_dim * model.num_attention_heads != model.hidden_size:
        ratio = f"hidden_size / num_attention_heads = {model.hidden_size} / {model.num_attention_heads}"
        what = f"takes head_dim to be {ratio}, not {model.head_dim}"
        yield _unsupported(model, "head_dim", what, "Make head_dim times num_attention_heads equal to hidden_size.")


def _embeddings(model: ModelConfig, support: FamilySupport, pp: int) -> Iterator[Problem]:
    if not model.tie_word_embeddings:
        return
    untie = "Set model.tie_word_embeddings=false."
    if not support.tied_embeddings:
        yield _unsupported(model, "tie_word_embeddings", "cannot share the embedding's weights with the output layer", untie)
    elif pp > 1:
        what = f"cannot share weights between the first and the last of {pp} pipeline stages"
        yield _unsupported(model, "tie_word_embeddings", what, f"Set parallel.pp=1. Or: {untie}")


def _rope(model: ModelConfig, support: FamilySupport) -> Iterator[Problem]:
    scaling = model.rope_scaling
    if scaling is None:
        return
    if scaling.rope_type not in support.rope:
        known = " or ".join(sorted(support.rope)) or "no"
        yield _unsupported(
            model, "rope_scaling", f"knows {known} stretching of positions, not {scaling.rope_type}", "Set model.rope_scaling=null."
        )
        return
    for field in sorted(_given_fields(scaling) - ROPE_FIELDS[scaling.rope_type]):
        what = f"{field} means nothing for rope_type {scaling.rope_type}."
        yield Problem(f"model.rope_scaling.{field}", what, (f"Set model.rope_scaling.{field}=null.",))
    if scaling.rope_type == "llama3":
        yield from _llama3_rope(scaling)
    else:
        yield from _yarn_rope(model, scaling) if model.mla is not None else _plain_yarn(model, scaling)


def _given_fields(scaling: RopeScaling) -> frozenset[str]:
    special = frozenset().union(*ROPE_FIELDS.values())
    return frozenset(field for field in special if getattr(scaling, field) is not None)


def _llama3_rope(scaling: RopeScaling) -> Iterator[Problem]:
    for field in sorted(ROPE_FIELDS["llama3"]):
        if getattr(scaling, field) is None:
            yield Problem(f"model.rope_scaling.{field}", "rope_type llama3 needs it.", ("Llama 3.1 to 3.3 have low 1.0 and high 4.0.",))
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    if low is not None and high is not None and low >= high:
        yield Problem(
            "model.rope_scaling.high_freq_factor", f"{high} is not above low_freq_factor, {low}.", ("Llama 3.1 to 3.3 have 1.0 and 4.0.",)
        )


def _yarn_rope(model: ModelConfig, scaling: RopeScaling) -> Iterator[Problem]:
    if not scaling.mscale or scaling.mscale != scaling.mscale_all_dim:
        what = "scales attention scores as a whole, which is yarn with mscale equal to mscale_all_dim and neither null nor 0"
        given = f"here they are {scaling.mscale} and {scaling.mscale_all_dim}"
        yield _unsupported(model, "rope_scaling.mscale", f"{what}; {given}", "Set both to one number; DeepSeek-V3 has 1.0.")
    yield from _yarn_factor(model, scaling)


def _plain_yarn(model: ModelConfig, scaling: RopeScaling) -> Iterator[Problem]:
    for field in ("mscale", "mscale_all_dim"):
        if getattr(scaling, field) is not None:
            what = "scales attention scores by the factor alone"
            yield _unsupported(model, f"rope_scaling.{field}", what, f"Set model.rope_scaling.{field}=null.")
    yield from _yarn_factor(model, scaling)


def _yarn_factor(model: ModelConfig, scaling: RopeScaling) -> Iterator[Problem]:
    if scaling.factor <= 1:
        yield _unsupported(model, "rope_scaling.factor", f"ignores yarn for a factor of {scaling.factor:g}", "Set model.rope_scaling=null.")


def _experts(model: ModelConfig, support: FamilySupport) -> Iterator[Problem]:
    moe = model.moe
    if moe is None or support.moe == "never":
        return
    if support.always and not moe.expert_bias_terms:
        fix = "Set model.moe.expert_bias_terms=true."
        yield _unsupported(model, "moe.expert_bias_terms", "always has biases in experts and routers", fix)
    if moe.expert_bias_terms and not support.always:
        yield _unsupported(model, "moe.expert_bias_terms", "has no biases in experts and routers", "Set model.moe.expert_bias_terms=false.")
    if moe.num_shared_experts and not support.shared_experts:
        yield _unsupported(model, "moe.num_shared_experts", "has no shared experts", "Set model.moe.num_shared_experts=0.")
    if moe.expert_bias and not support.selection_bias:
        yield _unsupported(model, "moe.expert_bias", "has no selection bias in its checkpoints", "Set model.moe.expert_bias=false.")
    if moe.num_experts_per_tok > moe.num_experts:
        what = f"a token cannot go to {moe.num_experts_per_tok} of {moe.num_experts} experts."
        yield Problem("model.moe.num_experts_per_tok", what, (f"Set at most {moe.num_experts}.",))
    yield from _groups(model, moe)


def _groups(model: ModelConfig, moe: MoeConfig) -> Iterator[Problem]:
    if moe.n_group == 1:
        if moe.topk_group != 1:
            yield Problem("model.moe.topk_group", f"{moe.topk_group} groups cannot be chosen of 1.", ("Set model.moe.topk_group=1.",))
        return
    if moe.topk_method == "greedy":
        what = f"{moe.n_group} groups mean nothing where experts are chosen over all (topk_method greedy)."
        yield Problem("model.moe.n_group", what, ("Set model.moe.n_group=1 and model.moe.topk_group=1, or topk_method=noaux_tc.",))
    elif moe.topk_method == "group_limited_greedy":
        what = "ranks groups by the sum of their two best experts, not by the best one as group_limited_greedy does"
        yield _unsupported(model, "moe.topk_method", what, "Choose a model with topk_method greedy or noaux_tc.")
    else:
        yield from _group_sizes(moe)


def _group_sizes(moe: MoeConfig) -> Iterator[Problem]:
    size, rest = divmod(moe.num_experts, moe.n_group)
    if rest or size < 2:
        what = f"{moe.num_experts} experts do not make {moe.n_group} equal groups of two or more."
        yield Problem("model.moe.n_group", what, ("Choose a divisor of model.moe.num_experts up to half of it.",))
    elif moe.topk_group > moe.n_group:
        what = f"{moe.topk_group} groups cannot be chosen of {moe.n_group}."
        yield Problem("model.moe.topk_group", what, (f"Set at most {moe.n_group}.",))
    elif moe.topk_group * size < moe.num_experts_per_tok:
        what = f"{moe.topk_group} groups of {size} experts do not hold the {moe.num_experts_per_tok} that each token is sent to."
        yield Problem("model.moe.topk_group", what, (f"Set at least {-(-moe.num_experts_per_tok // size)}.",))


def _unsupported(model: ModelConfig, field: str, what: str, fix: str) -> Problem:
    return Problem(f"model.{field}", f"TorchTitan's {model.family} {what}.", (fix,))
