"""Rotary embeddings in TorchTitan's words."""

from typing import Any

from primus_app.config.schema import ModelConfig


def rope_fields(model: ModelConfig, dim: int, seq_len: int) -> dict[str, Any]:
    """Fields of a RoPE.Config over ``dim`` dimensions and ``seq_len`` positions; yarn's defaults are Hugging Face's."""
    fields: dict[str, Any] = {"dim": dim, "max_seq_len": seq_len, "theta": model.rope_theta}
    scaling = model.rope_scaling
    if scaling is None:
        return fields
    if scaling.rope_type == "llama3":
        return fields | {
            "scaling": "llama",
            "scaling_factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position_embeddings,
        }
    return fields | {
        "scaling": "yarn",
        "rope_factor": scaling.factor,
        "beta_fast": 32.0 if scaling.beta_fast is None else scaling.beta_fast,
        "beta_slow": 1.0 if scaling.beta_slow is None else scaling.beta_slow,
        "original_seq_len": scaling.original_max_position_embeddings,
        "truncate": scaling.truncate is not False,
    }
