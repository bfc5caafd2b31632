"""Qwen3, dense and with experts, as TorchTitan's qwen3 model."""

from dataclasses import dataclass
from typing import Any

from torchtitan.models import qwen3
from torchtitan.models.common import CosSinRoPE

from primus_app.backends.torchtitan.attention import CpuAttentionMasks
from primus_app.backends.torchtitan.model.family import ATTENTION, Family, ends_of, set_routing
from primus_app.backends.torchtitan.model.rope import rope_fields
from primus_app.config.schema import ModelConfig, MoeConfig


class CpuQwen3Model(CpuAttentionMasks, qwen3.Qwen3Model):
    """Qwen3Model with the CPU's masks."""

    @dataclass(kw_only=True, slots=True)
    class Config(qwen3.Qwen3Model.Config):
        pass


def qwen3_config(model: ModelConfig, seq_len: int) -> qwen3.Qwen3Model.Config:
    """The configuration of Qwen3Model: the first layers dense where moe.first_k_dense_replace says so."""
    num_dense = model.num_hidden_layers if model.moe is None else min(model.moe.first_k_dense_replace, model.num_hidden_layers)
    shared = _shared_fields(model, seq_len)
    layers = qwen3._build_qwen3_layers(hidden_dim=model.intermediate_size, **shared)[:num_dense]
    if model.moe is not None:
        layers += _expert_layers(model.moe, shared)[num_dense:]
    ends = ends_of(
        model,
        embedding_init=qwen3._EMBEDDING_INIT,
        output_init=qwen3._LINEAR_INIT,
        norm_init=qwen3._NORM_INIT,
    )
    return qwen3.Qwen3Model.Config(layers=layers, **ends)


def _shared_fields(model: ModelConfig, seq_len: int) -> dict[str, Any]:
    return {
        "n_layers": model.num_hidden_layers,
        "dim": model.hidden_size,
        "n_heads": model.num_attention_heads,
        "n_kv_heads": model.num_key_value_heads,
        "head_dim": model.head_dim,
        "rope": CosSinRoPE.Config(**rope_fields(model, model.head_dim, seq_len)),
        "attn_backend": ATTENTION,
    }


def _expert_layers(moe: MoeConfig, shared: dict[str, Any]) -> list[Any]:
    layers = qwen3._build_qwen3_moe_layers(
        moe_hidden_dim=moe.moe_intermediate_size,
        num_experts=moe.num_experts,
        top_k=moe.num_experts_per_tok,
        moe_comm_backend="standard",
        **shared,
    )
    for layer in layers:
        set_routing(layer.moe.router, moe)
    return layers


FAMILY = Family("qwen3", qwen3_config, CpuQwen3Model, qwen3.parallelize_qwen3, qwen3.Qwen3StateDictAdapter)
