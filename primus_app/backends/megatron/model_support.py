"""Which models megatron-core 0.16 cannot represent, said before it is imported, so that nothing is silently ignored."""

from collections.abc import Iterator

from primus_app.config.errors import Problem
from primus_app.config.schema import ModelConfig, MoeConfig, RopeScaling

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Constants in megatron-core's stretching of positions; of a model it takes the factor alone."""


def check_model_support(model: ModelConfig) -> list[Problem]:
    """Everything about ``model`` that megatron-core would get wrong or leave out."""
    return [*_biases(model), *_sinks(model), *_activation(model), *_rope(model), *(_experts(model.moe) if model.moe else ())]


def _biases(model: ModelConfig) -> Iterator[Problem]:
    """Megatron has them in all matrices of its layers, or in none, or in those of query, key and value alone."""
    moe = model.moe
    experts = moe is not None and moe.expert_bias_terms
    everywhere = moe is not None and moe.first_k_dense_replace == 0 and moe.num_shared_experts == 0 and model.mla is None
    if model.attention_bias and not (experts and everywhere):
        what = "megatron-core has biases on the attention's output projection only with biases in all experts and routers"
        yield Problem("model.attention_bias", what, ("model.attention_bias=false",))
    if experts and not model.attention_bias:
        what = "megatron-core has biases in experts and routers only with biases on all attention projections"
        yield Problem("model.moe.expert_bias_terms", what, ("model.moe.expert_bias_terms=false",))


def _sinks(model: ModelConfig) -> Iterator[Problem]:
    if model.attention_sinks and model.mla is not None:
        yield Problem("model.attention_sinks", "latent attention has no sinks in megatron-core", ("model.attention_sinks=false",))


def _activation(model: ModelConfig) -> Iterator[Problem]:
    if model.swiglu_limit is not None and model.family != "gpt_oss":
        what = "megatron-core bounds the inputs of SwiGLU as gpt_oss has it, not otherwise"
        yield Problem("model.swiglu_limit", what, ("model.swiglu_limit=null",))


def _rope(model: ModelConfig) -> Iterator[Problem]:
    scaling = model.rope_scaling
    if scaling is None:
        return
    known = ("yarn",) if model.mla else ("llama3", "linear", "yarn")
    if scaling.rope_type not in known:
        where = "latent attention" if model.mla else "plain attention"
        what = f"{scaling.rope_type}: megatron-core's {where} knows {' and '.join(known)} stretching of positions"
        yield Problem("model.rope_scaling.rope_type", what, ("model.rope_scaling=null",))
    elif scaling.rope_type == "llama3":
        yield from _llama3(scaling)
    elif scaling.rope_type == "yarn":
        yield from _yarn(scaling) if model.mla else _plain_yarn(scaling)


def _llama3(scaling: RopeScaling) -> Iterator[Problem]:
    for field, constant in LLAMA3.items():
        value = getattr(scaling, field)
        if value != constant:
            what = f"{value:g}: megatron-core stretches positions with {constant:g}, which it has no option for"
            yield Problem(f"model.rope_scaling.{field}", what, (f"model.rope_scaling.{field}={constant:g}",))


def _plain_yarn(scaling: RopeScaling) -> Iterator[Problem]:
    for field in ("mscale", "mscale_all_dim"):
        if getattr(scaling, field) == 0:
            what = "0: megatron-core takes it for a number, Hugging Face for none"
            yield Problem(f"model.rope_scaling.{field}", what, (f"model.rope_scaling.{field}=null",))


def _yarn(scaling: RopeScaling) -> Iterator[Problem]:
    if scaling.truncate is False:
        what = "false: megatron-core always rounds the borders of the ramp to whole dimensions"
        yield Problem("model.rope_scaling.truncate", what, ("model.rope_scaling.truncate=true",))
    if not scaling.mscale or not scaling.mscale_all_dim:
        what = f"mscale {scaling.mscale} and mscale_all_dim {scaling.mscale_all_dim}: megatron-core takes two numbers above 0"
        yield Problem("model.rope_scaling.mscale", what, ("give both; DeepSeek-V3 has 1.0",))


def _experts(moe: MoeConfig) -> Iterator[Problem]:
    if moe.expert_bias and moe.score != "sigmoid":
        what = "true: megatron-core has a selection bias only where the router scores by sigmoid"
        yield Problem("model.moe.expert_bias", what, ("model.moe.expert_bias=false",))
    normalises = moe.score == "sigmoid" and moe.num_experts_per_tok > 1
    if moe.score == "sigmoid" and moe.norm_topk_prob != normalises:
        how = "always" if normalises else "never"
        given = str(moe.norm_topk_prob).lower()
        what = f"{given}: of {moe.num_experts_per_tok} experts chosen by sigmoid megatron-core {how} scales the weights"
        yield Problem("model.moe.norm_topk_prob", what, (f"model.moe.norm_topk_prob={str(normalises).lower()}",))
    if moe.score == "softmax" and moe.norm_topk_prob and moe.num_experts_per_tok == 1:
        what = "true: megatron-core does not scale the weight of a single expert"
        yield Problem("model.moe.norm_topk_prob", what, ("model.moe.norm_topk_prob=false",))
    yield from _groups(moe)


def _groups(moe: MoeConfig) -> Iterator[Problem]:
    """Megatron scores a group by its best num_experts_per_tok / topk_group experts."""
    if moe.n_group == 1:
        return
    best = {"noaux_tc": 2, "group_limited_greedy": 1}.get(moe.topk_method)
    if best is not None and moe.num_experts_per_tok != best * moe.topk_group:
        of = "expert" if best == 1 else f"{best} experts"
        what = (
            f"{moe.topk_group}: megatron-core scores a group by its best num_experts_per_tok / topk_group = "
            f"{moe.num_experts_per_tok} / {moe.topk_group} experts, {moe.topk_method} by its best {of}"
        )
        fix = (f"model.moe.topk_group={moe.num_experts_per_tok // best}",) if moe.num_experts_per_tok % best == 0 else ()
        yield Problem("model.moe.topk_group", what, (*fix, f"model.moe.num_experts_per_tok={best * moe.topk_group}"))
