"""Models of conf/model/ and what Hugging Face's transformers makes of them, as the other implementation to agree with."""

from collections.abc import Callable
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
