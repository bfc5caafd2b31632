"""build_model_spec: one ModelConfig as the ModelSpec that TorchTitan's trainer takes."""

from collections.abc import Callable
from typing import Any, Literal

from torchtitan.components.optimizer import register_moe_load_balancing_hook
from torchtitan.config import derive
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.common.attention import FlexAttention
from torchtitan.models.common.decoder import Decoder
from torchtitan.models.common.moe import GroupedExperts, MoE, TokenChoiceTopKRouter
from torchtitan.models.common.nn_modules import RMSNorm
from torchtitan.protocols.model_spec import ModelSpec

from primus_app.backends.torchtitan.attention import CpuFlexAttention
from primus_app.backends.torchtitan.experts import Float32Gate, Float32GptOssExperts, Float32GroupedExperts, silence_cpu_autocast
from primus_app.backends.torchtitan.model import deepseek, gpt_oss, llama, qwen3
from primus_app.backends.torchtitan.model.family import Family
from primus_app.backends.torchtitan.model_support import check_model_support
from primus_app.backends.torchtitan.router import BalancedRouter
from primus_app.config.errors import UserError
from primus_app.config.schema import ModelConfig

FAMILIES: dict[str, Family] = {
    "llama": llama.FAMILY,
    "qwen3": qwen3.FAMILY,
    "qwen3_moe": qwen3.FAMILY,
    "deepseek_v2": deepseek.FAMILY,
    "deepseek_v3": deepseek.FAMILY,
    "gpt_oss": gpt_oss.FAMILY,
}
"""TorchTitan's model for each of ours; model_support refuses the others."""

BIAS_UPDATE_SPEED = 1e-3
"""Change of the routers' selection bias in one step, as in DeepSeek-V3 (arXiv:2412.19437, section 4.2)."""


def build_model_spec(
    model: ModelConfig,
    *,
    seq_len: int,
    load_balancing: Literal["none", "expert_bias", "aux_loss"] = "none",
    cpu: bool,
    compute: Literal["fp32", "bf16"],
    sequence_weight: float = 0.0,
) -> ModelSpec:
    """``model`` for sequences of up to ``seq_len`` tokens; ``cpu`` takes attention that has a backward pass there.

    ``compute`` is precision.compute: with fp32, routed experts compute in float32 too. ``sequence_weight`` is what the balance loss
    of one sequence counts, with load_balancing aux_loss. Call prepare_device first.
    Raises UserError for what TorchTitan cannot represent.
    """
    if problems := check_model_support(model):
        raise UserError(problems)
    family = FAMILIES[model.family]
    config = family.build_config(model, seq_len)
    _set_norm_eps(config, model.rms_norm_eps)
    _set_selection_bias(config, present=load_balancing == "expert_bias" or (model.moe is not None and model.moe.expert_bias))
    if load_balancing == "aux_loss":
        _derive_all(config, TokenChoiceTopKRouter.Config, BalancedRouter.Config, seq_len=seq_len, sequence_weight=sequence_weight)
    if compute == "fp32":
        _derive_all(config, GroupedExperts.Config, (Float32GptOssExperts if family is gpt_oss.FAMILY else Float32GroupedExperts).Config)
    if cpu:
        config = _for_cpu(config, family)
    return ModelSpec(
        name=family.name,
        flavor=model.name,
        model=config,
        parallelize_fn=family.parallelize,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=_bias_updates(load_balancing),
        state_dict_adapter=family.adapter,
    )


def _for_cpu(config: Decoder.Config, family: Family) -> Decoder.Config:
    _derive_all(config, FlexAttention.Config, CpuFlexAttention.Config)
    for _, router, _, _ in config.traverse(TokenChoiceTopKRouter.Config):
        router.gate = derive(router.gate, Float32Gate.Config)
    silence_cpu_autocast()
    return derive(config, family.cpu_model.Config)


def _bias_updates(load_balancing: str) -> Callable[..., None] | None:
    return register_moe_load_balancing_hook if load_balancing == "expert_bias" else None


def _set_norm_eps(config: Decoder.Config, eps: float) -> None:
    for _, norm, _, _ in config.traverse(RMSNorm.Config):
        norm.eps = eps


def _set_selection_bias(config: Decoder.Config, *, present: bool) -> None:
    # TorchTitan has the buffer where it has a speed; without its hook on the optimizer, nothing ever changes it.
    for _, moe, _, _ in config.traverse(MoE.Config):
        moe.load_balance_coeff = BIAS_UPDATE_SPEED if present else None


def _derive_all(config: Decoder.Config, source: type, target: type, **fields: Any) -> None:
    for _, node, parent, key in list(config.traverse(source)):
        replacement = derive(node, target, **fields)
        if isinstance(parent, list) and isinstance(key, int):
            parent[key] = replacement
        else:
            setattr(parent, str(key), replacement)
