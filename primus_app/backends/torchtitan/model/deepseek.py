"""DeepSeek-V2 and V3 (latent attention, shared experts) as TorchTitan's deepseek_v3 model, without multi-token prediction."""

from dataclasses import dataclass
from typing import Any

from torchtitan.models import deepseek_v3
from torchtitan.models.common import ComplexRoPE

from primus_app.backends.torchtitan.attention import CpuAttentionMasks
from primus_app.backends.torchtitan.model.family import ATTENTION, Family, ends_of, set_routing
from primus_app.backends.torchtitan.model.rope import rope_fields
from primus_app.config.schema import MlaConfig, ModelConfig, MoeConfig


class CpuDeepSeekModel(CpuAttentionMasks, deepseek_v3.DeepSeekV3Model):
    """DeepSeekV3Model with the CPU's masks."""

    @dataclass(kw_only=True, slots=True)
    class Config(deepseek_v3.DeepSeekV3Model.Config):
        pass


def deepseek_config(model: ModelConfig, seq_len: int) -> deepseek_v3.DeepSeekV3Model.Config:
    """The configuration of DeepSeekV3Model; all layers are dense for a model without experts."""
    assert model.mla is not None
    layers = deepseek_v3._build_dsv3_layers(
        n_layers=model.num_hidden_layers,
        dim=model.hidden_size,
        n_heads=model.num_attention_heads,
        dense_hidden_dim=model.intermediate_size,
        attn_backend=ATTENTION,
        **_attention_fields(model, model.mla, seq_len),
        **_expert_fields(model),
    )
    for layer in layers:
        if layer.moe is not None and model.moe is not None:
            set_routing(layer.moe.router, model.moe)
            if not model.moe.num_shared_experts:
                layer.moe.shared_experts = None
    ends = ends_of(
        model,
        embedding_init=deepseek_v3._EMBEDDING_INIT,
        output_init=deepseek_v3._output_linear_init(model.hidden_size),
        norm_init=deepseek_v3._NORM_INIT,
    )
    return deepseek_v3.DeepSeekV3Model.Config(layers=layers, mtp_layers=[], **ends)


def _attention_fields(model: ModelConfig, mla: MlaConfig, seq_len: int) -> dict[str, Any]:
    scaling = model.rope_scaling
    return {
        "q_lora_rank": mla.q_lora_rank or 0,
        "kv_lora_rank": mla.kv_lora_rank,
        "qk_nope_head_dim": mla.qk_nope_head_dim,
        "qk_rope_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim,
        # TorchTitan scales scores by it alone; model_support wants mscale equal, so that rotations are not scaled.
        "mscale": 1.0 if scaling is None or scaling.mscale_all_dim is None else scaling.mscale_all_dim,
        "rope": ComplexRoPE.Config(**rope_fields(model, mla.qk_rope_head_dim, seq_len)),
    }


def _expert_fields(model: ModelConfig) -> dict[str, Any]:
    # The builder wants numbers for experts even where every layer is dense; they reach no layer then.
    moe = model.moe or MoeConfig(num_experts=1, num_experts_per_tok=1, moe_intermediate_size=1)
    return {
        "n_dense_layers": moe.first_k_dense_replace if model.moe else model.num_hidden_layers,
        "moe_hidden_dim": moe.moe_intermediate_size,
        "num_experts": moe.num_experts,
        "num_shared_experts": moe.num_shared_experts,
        "router_top_k": moe.num_experts_per_tok,
        "router_score_func": moe.score,
        "moe_comm_backend": "standard",
        "non_blocking_capacity_factor": None,
    }


FAMILY = Family(
    "deepseek_v3",
    deepseek_config,
    CpuDeepSeekModel,
    deepseek_v3.parallelize_deepseekv3,
    deepseek_v3.DeepSeekV3StateDictAdapter,
)
