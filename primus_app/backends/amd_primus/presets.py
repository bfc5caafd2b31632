"""The model presets of Primus by name: the model of conf/model/ that each stands for, and what it sets in Megatron's words.

The settings are facts of primus/configs/models/megatron/*.yaml as of commit fd1eeabb; what is not here is Primus' own default
(fields.py). A preset need not be the published model: Primus' Qwen presets have no biases and its Llama 3.1 does not stretch positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A model of Primus: ours of the same name, if there is one, and its settings."""

    model: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)


LLAMA: dict[str, Any] = {
    "position_embedding_type": "rope",
    "normalization": "RMSNorm",
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "rotary_scaling_factor": 40.0,
}
LLAMA2: dict[str, Any] = {**LLAMA, "max_position_embeddings": 4096}
LLAMA3: dict[str, Any] = {**LLAMA, "group_query_attention": True, "max_position_embeddings": 8192, "rotary_base": 500000}
QWEN: dict[str, Any] = {
    **LLAMA,
    "group_query_attention": True,
    "rotary_base": 1000000,
    "max_position_embeddings": 131072,
    "norm_epsilon": 1e-6,
    "init_method_std": 0.008,
}
MIXTRAL: dict[str, Any] = {
    **LLAMA,
    "init_method_std": 0.01,
    "rotary_base": 1000000,
    "group_query_attention": True,
    "num_query_groups": 8,
    "num_experts": 8,
    "moe_router_topk": 2,
    "moe_aux_loss_coeff": 1e-2,
}
DEEPSEEK: dict[str, Any] = {
    **LLAMA,
    "norm_epsilon": 1e-6,
    "multi_latent_attention": True,
    "qk_layernorm": True,
    "moe_router_topk": 6,
    "moe_router_topk_scaling_factor": 1.0,
    "moe_router_load_balancing_type": "seq_aux_loss",
    "moe_aux_loss_coeff": 0.001,
    "original_max_position_embeddings": 4096,
    "expert_model_parallel_size": 1,
}
DEEPSEEK_V2: dict[str, Any] = {**DEEPSEEK, "moe_router_pre_softmax": True, "mscale": 0.707, "mscale_all_dim": 0.707}
DEEPSEEK_V3: dict[str, Any] = {**DEEPSEEK, "moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True}

BASES: dict[str, dict[str, Any]] = {
    "primus_megatron_model": {},
    "language_model": {},
    "llama_base": LLAMA,
    "llama2_base": LLAMA2,
    "llama3_base": LLAMA3,
    "qwen2.5_base": QWEN,
    "mixtral_base": MIXTRAL,
    "deepseek_v2_base": DEEPSEEK_V2,
    "deepseek_v3_base": DEEPSEEK_V3,
}
"""Presets that others extend; they are no models."""


def _dense(base: dict[str, Any], layers: int, hidden: int, ffn: int, heads: int, groups: int | None = None, **more: Any) -> dict[str, Any]:
    sizes = {"num_layers": layers, "hidden_size": hidden, "ffn_hidden_size": ffn, "num_attention_heads": heads}
    return {**base, **sizes, **({} if groups is None else {"group_query_attention": True, "num_query_groups": groups}), **more}


def _latent(base: dict[str, Any], layers: int, hidden: int, ffn: int, heads: int, q_rank: int | None, **more: Any) -> dict[str, Any]:
    attention = {"q_lora_rank": q_rank, "kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128}
    return {**_dense(base, layers, hidden, ffn, heads), **attention, "kv_channels": 128, "expert_model_parallel_size": 8, **more}


LONG = {"max_position_embeddings": 131072}
QWEN_MOE: dict[str, Any] = {"num_experts": 128, "moe_router_topk": 8, "qk_layernorm": True, "kv_channels": 128}
GPT_OSS: dict[str, Any] = {
    "multi_latent_attention": False,
    "kv_channels": 64,
    "moe_router_topk": 4,
    "moe_ffn_hidden_size": 2880,
    "moe_shared_expert_intermediate_size": 2880,
    "expert_model_parallel_size": 8,
}
BIG_MOE: dict[str, Any] = {
    "multi_latent_attention": False,
    "moe_ffn_hidden_size": 1920,
    "moe_shared_expert_intermediate_size": 1920,
}

MEGATRON: dict[str, Preset] = {
    "llama2_7B": Preset("llama2_7b", _dense(LLAMA2, 32, 4096, 11008, 32)),
    "llama2_13B": Preset("llama2_13b", _dense(LLAMA2, 40, 5120, 13824, 40)),
    "llama2_70B": Preset("llama2_70b", _dense(LLAMA2, 80, 8192, 28672, 64, 8)),
    "llama3_8B": Preset("llama3_8b", _dense(LLAMA3, 32, 4096, 14336, 32, 8)),
    "llama3_70B": Preset("llama3_70b", _dense(LLAMA3, 80, 8192, 28672, 64, 8)),
    "llama3.1_8B": Preset("llama3_1_8b", _dense(LLAMA3, 32, 4096, 14336, 32, 8, **LONG)),
    "llama3.1_70B": Preset("llama3_1_70b", _dense(LLAMA3, 80, 8192, 28672, 64, 8, **LONG)),
    "llama3.1_405B": Preset("llama3_1_405b", _dense(LLAMA3, 126, 16384, 53248, 128, 8)),
    "llama3.2_1B": Preset("llama3_2_1b", _dense(LLAMA3, 16, 2048, 8192, 32, 8)),
    "llama3.2_3B": Preset("llama3_2_3b", _dense(LLAMA3, 28, 3072, 8192, 24, 8)),
    "llama3.3_70B": Preset("llama3_3_70b", _dense(LLAMA3, 80, 8192, 28672, 64, 8, **LONG)),
    "qwen2.5_3B": Preset("qwen2_5_3b", _dense(QWEN, 36, 2048, 11008, 16, 2)),
    "qwen2.5_7B": Preset("qwen2_5_7b", _dense(QWEN, 28, 3584, 18944, 28, 4)),
    "qwen2.5_14B": Preset("qwen2_5_14b", _dense(QWEN, 48, 5120, 13824, 40, 8)),
    "qwen2.5_32B": Preset("qwen2_5_32b", _dense(QWEN, 64, 5120, 27648, 40, 8)),
    "qwen2.5_72B": Preset("qwen2_5_72b", _dense(QWEN, 80, 8192, 29568, 64, 8)),
    "deepseek_r1_distill_qwen_1.5B": Preset("qwen2_5_1_5b", _dense(QWEN, 28, 1536, 8960, 12, 2, rotary_base=10000)),
    "qwen3_4B": Preset("qwen3_4b", _dense(QWEN, 36, 2560, 9728, 32, 8)),
    "qwen3_8B": Preset("qwen3_8b", _dense(QWEN, 36, 4096, 12288, 32, 8)),
    "qwen3_14B": Preset("qwen3_14b", _dense(QWEN, 40, 5120, 17408, 40, 8)),
    "qwen3_32B": Preset("qwen3_32b", _dense(QWEN, 64, 5120, 25600, 64, 8)),
    "qwen3_30B_A3B": Preset("qwen3_30b_a3b", _dense(QWEN, 48, 2048, 6144, 32, 4, **QWEN_MOE, moe_ffn_hidden_size=768)),
    "qwen3_235B_A22B": Preset("qwen3_235b_a22b", _dense(QWEN, 94, 4096, 12288, 64, 4, **QWEN_MOE, moe_ffn_hidden_size=1536)),
    "qwen3_235B_A22B_4layer": Preset("qwen3_235b_a22b", _dense(QWEN, 4, 4096, 12288, 64, 4, **QWEN_MOE, moe_ffn_hidden_size=1536)),
    "mixtral_8x7B_v0.1": Preset("mixtral_8x7b", _dense(MIXTRAL, 32, 4096, 14336, 32, max_position_embeddings=4096)),
    "mixtral_8x22B_v0.1": Preset("mixtral_8x22b", _dense(MIXTRAL, 56, 6144, 16384, 48, max_position_embeddings=65536)),
    "deepseek_v2_lite": Preset(
        "deepseek_v2_lite",
        _latent(DEEPSEEK_V2, 27, 2048, 10944, 16, None, moe_layer_freq="([0]*1+[1]*26)", num_experts=64, moe_ffn_hidden_size=1408)
        | {"moe_shared_expert_intermediate_size": 2816},
    ),
    "deepseek_v2": Preset(
        "deepseek_v2",
        _latent(DEEPSEEK_V2, 60, 5120, 12288, 128, 1536, moe_layer_freq="([0]*1+[1]*59)", num_experts=160, moe_ffn_hidden_size=1536)
        | {"moe_shared_expert_intermediate_size": 3072, "moe_router_num_groups": 8, "moe_router_group_topk": 3}
        | {"moe_router_topk_scaling_factor": 16.0},
    ),
    "deepseek_v3": Preset(
        "deepseek_v3",
        _latent(DEEPSEEK_V3, 61, 7168, 18432, 128, 1536, moe_layer_freq="([0]*3+[1]*58)", num_experts=256, moe_ffn_hidden_size=2048)
        | {"moe_shared_expert_intermediate_size": 2048, "moe_router_num_groups": 8, "moe_router_group_topk": 4, "mtp_num_layers": 1}
        | {"moe_router_topk_scaling_factor": 2.5, "moe_router_topk": 8},
    ),
    "gpt_oss_20B": Preset("gpt_oss_20b", _dense(DEEPSEEK_V2, 24, 2880, 10944, 64, 8, num_experts=32) | GPT_OSS),
    "gpt_oss_120B": Preset("gpt_oss_120b", _dense(DEEPSEEK_V2, 36, 2880, 10944, 64, 8, num_experts=128) | GPT_OSS),
    "moe_515B": Preset(None, _dense(DEEPSEEK_V2, 96, 8192, 12288, 64, 8, num_experts=112, moe_router_topk=8) | BIG_MOE),
    "moe_1T": Preset(None, _dense(DEEPSEEK_V2, 96, 8192, 12288, 64, 8, num_experts=224, moe_router_topk=8) | BIG_MOE),
    "moe_2T": Preset(None, _dense(DEEPSEEK_V2, 96, 8192, 12288, 64, 8, num_experts=448, moe_router_topk=16) | BIG_MOE),
    "moe_4T": Preset(None, _dense(DEEPSEEK_V2, 96, 8192, 12288, 64, 8, num_experts=896, moe_router_topk=32) | BIG_MOE),
}

OTHER_KINDS = {
    "llama4": "Llama 4",
    "grok": "Grok",
    "kimi": "Kimi",
    "glm": "GLM",
    "lfm": "LFM",
    "minimax": "MiniMax",
    "mamba": "Mamba",
    "zebra": "a hybrid of attention and state-space layers",
    "hybrid": "a hybrid of attention and state-space layers",
    "qwen3_5": "Qwen 3.5, with linear attention",
    "deepseek_v4": "DeepSeek-V4",
    "flux": "a diffusion model",
    "moe_proxy": "a stand-in for timing",
}
"""Beginnings of Primus' other presets, and what they are; none is trained here."""

TITAN: dict[str, tuple[str, str, str]] = {
    "llama3_8B": ("llama3", "8B", "meta-llama/Meta-Llama-3-8B"),
    "llama3_70B": ("llama3", "70B", "meta-llama/Meta-Llama-3-70B"),
    "llama3.1_8B": ("llama3", "8B", "meta-llama/Llama-3.1-8B"),
    "llama3.1_70B": ("llama3", "70B", "meta-llama/Llama-3.1-70B"),
    "llama3.1_405B": ("llama3", "405B", "meta-llama/Llama-3.1-405B"),
    "llama3.2_1B": ("llama3", "1B", "meta-llama/Llama-3.2-1B"),
    "llama3.3_70B": ("llama3", "70B", "meta-llama/Llama-3.3-70B-Instruct"),
    "llama4_17Bx16E": ("llama4", "17bx16e", "meta-llama/Llama-4-Scout-17B-16E"),
    "llama4_17Bx128E": ("llama4", "17bx128e", "meta-llama/Llama-4-Maverick-17B-128E"),
    "qwen3_0.6b": ("qwen3", "0.6B", "Qwen/Qwen3-0.6B"),
    "qwen3_1.7b": ("qwen3", "1.7B", "Qwen/Qwen3-1.7B"),
    "qwen3_4b": ("qwen3", "4B", "Qwen/Qwen3-4B"),
    "qwen3_8b": ("qwen3", "8B", "Qwen/Qwen3-8B"),
    "qwen3_14b": ("qwen3", "14B", "Qwen/Qwen3-14B"),
    "qwen3_32b": ("qwen3", "32B", "Qwen/Qwen3-32B"),
    "deepseek_v3_16b": ("deepseek_v3", "16B", "deepseek-ai/deepseek-moe-16b-base"),
    "deepseek_v3_236b": ("deepseek_v3", "236B", "deepseek-ai/DeepSeek-V2.5"),
    "deepseek_v3_671b": ("deepseek_v3", "671B", "deepseek-ai/DeepSeek-V3.1-Base"),
    "gpt_oss_20b": ("gpt_oss", "20b", "openai/gpt-oss-20b"),
    "gpt_oss_120b": ("gpt_oss", "120b", "openai/gpt-oss-120b"),
}
"""Primus' presets for TorchTitan: model.name, model.flavor and model.hf_assets_path; with -fp8 at the end they are trained in 8 bits."""

FP8_ENDING = "-fp8"
