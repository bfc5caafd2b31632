"""Models of conf/model/ and what Hugging Face's transformers makes of them, as the other implementation to agree with."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_app.config.schema import ModelConfig

CONF = Path(__file__).parents[2] / "conf" / "model"


def load_model(name: str, **changes: Any) -> ModelConfig:
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    return ModelConfig.model_validate({**values, **changes})


def transformers_config(model: ModelConfig) -> Any:
    """transformers' configuration of ``model``, written in its own words."""
    from transformers import AutoConfig

    rope = {"rope_theta": model.rope_theta, "rope_type": "default"}
    if model.rope_scaling is not None:
        rope |= model.rope_scaling.model_dump(exclude_none=True)
    fields: dict[str, Any] = {
        key: getattr(model, key)
        for key in (
            "num_hidden_layers",
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            "rms_norm_eps",
            "tie_word_embeddings",
            "attention_bias",
        )
    }
    if model.family == "gpt_oss":
        fields |= {"sliding_window": model.sliding_window, "swiglu_limit": model.swiglu_limit}
    if model.mla is None:
        fields["head_dim"] = model.head_dim
    else:
        fields |= model.mla.model_dump() | {"rope_interleave": True}
    return AutoConfig.for_model(model.family, rope_parameters=rope, **(fields | _expert_fields(model)))


def _expert_fields(model: ModelConfig) -> dict[str, Any]:
    moe = model.moe
    if moe is None:
        return {"first_k_dense_replace": model.num_hidden_layers} if model.mla is not None else {}
    fields: dict[str, Any] = {"num_experts_per_tok": moe.num_experts_per_tok, "norm_topk_prob": moe.norm_topk_prob}
    if model.family in ("mixtral", "gpt_oss"):
        return fields | {"num_local_experts": moe.num_experts, "intermediate_size": moe.moe_intermediate_size}
    fields["moe_intermediate_size"] = moe.moe_intermediate_size
    if model.family == "qwen3_moe":
        return fields | {
            "num_experts": moe.num_experts,
            "mlp_only_layers": list(range(moe.first_k_dense_replace)),
            "decoder_sparse_step": 1,
        }
    return fields | {
        "n_routed_experts": moe.num_experts,
        "n_shared_experts": moe.num_shared_experts,
        "n_group": moe.n_group,
        "topk_group": moe.topk_group,
        "topk_method": moe.topk_method,
        "first_k_dense_replace": moe.first_k_dense_replace,
        "routed_scaling_factor": moe.routed_scaling_factor,
    }


@pytest.fixture(scope="session")
def model_of() -> Callable[..., ModelConfig]:
    """``model_of(name, **changes)``: a model of conf/model/ with some fields changed."""
    return load_model


@pytest.fixture(scope="session")
def hf_config_of() -> Callable[[ModelConfig], Any]:
    """``hf_config_of(model)``: transformers' configuration of it."""
    return transformers_config


SMALL = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.06,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {},
    "qwen3": {"head_dim": 24},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16, "norm_topk_prob": True},
    "deepseek_v2": LATENT | {"q_lora_rank": None, "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0},
    "deepseek_v3": LATENT | {"norm_topk_prob": True, "routed_scaling_factor": 2.5},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 24, "sliding_window": 16},
}


@pytest.fixture(scope="session")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``hf_folder(family)``: a tiny model that transformers has drawn and saved, with a selection bias that is not 0."""

    @cache
    def make(family: str) -> Path:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **(SMALL | FAMILIES[family])))
        with torch.no_grad():
            for name, weight in (*model.named_parameters(), *model.named_buffers()):
                if name.endswith("e_score_correction_bias"):
                    weight.copy_(torch.linspace(-0.2, 0.2, weight.numel()))
                elif (weight.ndim == 1 or name.endswith("_bias")) and "rotary" not in name:
                    weight.add_(torch.randn(weight.shape) / 10)  # Norms and biases are not all alike.
        folder = tmp_path_factory.mktemp("hf") / family
        model.save_pretrained(folder, max_shard_size="200KB")
        return folder

    return make
