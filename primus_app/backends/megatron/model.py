"""Megatron-core's GPTModel of a run: one chunk for each virtual stage of this rank."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.fusions.fused_bias_geglu import quick_gelu
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.moe.moe_layer import MoESubmodules
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

from primus_app.backends.megatron.attention import CoreAttention
from primus_app.backends.megatron.device import engine_imports
from primus_app.backends.megatron.expert_bias import ExpertDown
from primus_app.backends.megatron.norm import SequenceParallelNorm
from primus_app.backends.megatron.replicated import ReplicatedLinear
from primus_app.backends.megatron.router import BalancedRouter
from primus_app.backends.megatron.sinks import SinkAttention
from primus_app.backends.megatron.translate import model_settings
from primus_app.backends.megatron.yarn import YarnTransformerConfig
from primus_app.config.schema import ModelConfig

logger = logging.getLogger(__name__)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ACTIVATIONS = {"silu": F.silu, "quick_gelu": quick_gelu}
NORMS = ("input_layernorm", "pre_mlp_layernorm")
LATENT_DOWN = ("linear_q_down_proj", "linear_kv_down_proj")
LATENT_NORMS = ("q_layernorm", "kv_layernorm", "k_layernorm")


def native(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` with torch's number formats and functions for their names."""
    found = {name: DTYPES[value] if name.endswith("_dtype") and value in DTYPES else value for name, value in settings.items()}
    if "moe_router_dtype" in settings:
        found["moe_router_dtype"] = settings["moe_router_dtype"]
    if "attention_backend" in settings:
        found["attention_backend"] = AttnBackend[settings["attention_backend"]]
    if "activation_func" in settings:
        found["activation_func"] = ACTIVATIONS[settings["activation_func"]]
    return found


def transformer_config(settings: Mapping[str, Any]) -> TransformerConfig:
    """Megatron's configuration; latent attention has a class of its own, and yarn without it one of ours."""
    kind: type[TransformerConfig] = YarnTransformerConfig if "yarn_rotary_scaling_factor" in settings else TransformerConfig
    return (MLATransformerConfig if settings.get("multi_latent_attention") else kind)(**native(settings))


def build_chunks(config: TransformerConfig, model: ModelConfig, seq_len: int, *, engine: bool, document_mask: bool) -> list[GPTModel]:
    """The chunks of this rank, in the order of the pipeline; their weights are not set yet where model.init is seeded."""
    virtual = config.virtual_pipeline_model_parallel_size
    stages = range(virtual) if virtual else [None]
    own_attention = has_own_attention(config, engine=engine, document_mask=document_mask)
    logger.info(
        "layers of %s, attention of %s",
        "Transformer Engine" if engine else "megatron-core",
        "torch" if own_attention else "Transformer Engine",
    )
    return [_chunk(config, model, seq_len, stage, engine=engine, own_attention=own_attention) for stage in stages]


def build_chunk(config: TransformerConfig, model: ModelConfig, seq_len: int, stage: int | None, *, document_mask: bool) -> GPTModel:
    """The chunk of one virtual stage; None is the only one."""
    engine = engine_imports()
    own_attention = has_own_attention(config, engine=engine, document_mask=document_mask)
    return _chunk(config, model, seq_len, stage, engine=engine, own_attention=own_attention)


def has_own_attention(config: TransformerConfig, *, engine: bool, document_mask: bool) -> bool:
    """Whether CoreAttention goes in: Transformer Engine's knows no masks of documents, and under cp no windows (with p2p, its default).

    Sinks it has in some of its versions and kernels alone.
    """
    windows_under_cp = config.window_size is not None and config.context_parallel_size > 1
    return not engine or document_mask or windows_under_cp or config.softmax_type == "learnable"


def _chunk(
    config: TransformerConfig, model: ModelConfig, seq_len: int, stage: int | None, *, engine: bool, own_attention: bool
) -> GPTModel:
    chunk = GPTModel(
        config=config,
        transformer_layer_spec=_layers(config, stage, engine=engine, own_attention=own_attention),
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
        vp_stage=stage,
        **model_settings(model, seq_len),
    )
    chunk.model_type = ModelType.encoder_or_decoder
    return chunk


def _layers(config: TransformerConfig, stage: int | None, *, engine: bool, own_attention: bool) -> TransformerBlockSubmodules:
    """Megatron's specification of this stage's layers, with our parts where its own cannot do what is asked."""
    block = get_gpt_decoder_block_spec(config, use_transformer_engine=engine, normalization="RMSNorm", vp_stage=stage)
    for layer in block.layer_specs:
        attention = layer.submodules.self_attention.submodules
        if own_attention:
            attention.core_attention = SinkAttention if config.softmax_type == "learnable" else CoreAttention
        if config.moe_router_load_balancing_type == "seq_aux_loss" and isinstance(layer.submodules.mlp.submodules, MoESubmodules):
            layer.submodules.mlp.submodules.router = BalancedRouter
        if engine:
            continue
        for name in NORMS:
            setattr(layer.submodules, name, SequenceParallelNorm)
        if config.add_bias_linear:
            layer.submodules.mlp.submodules.experts.submodules.linear_fc2 = ExpertDown
        for name in LATENT_DOWN:
            if getattr(attention, name, None) is not None:
                setattr(attention, name, ReplicatedLinear)
        for name in LATENT_NORMS:
            if isinstance(getattr(attention, name, None), type) and "Norm" in getattr(attention, name).__name__:
                setattr(attention, name, SequenceParallelNorm)
    if not engine:
        block.layer_norm = SequenceParallelNorm
    return block
