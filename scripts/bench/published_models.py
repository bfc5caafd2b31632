"""The model of a published run as ours, from its name or from the sizes that its source gives."""

from pathlib import Path
from typing import Any

import yaml

from primus_app.config.schema import ModelConfig

CONF = Path(__file__).resolve().parents[2] / "conf"

OURS = {
    "llama3.1-405b": "llama3_1_405b",
    "llama-3.1-405b": "llama3_1_405b",
    "llama3-70b": "llama3_70b",
    "llama-3-70b": "llama3_70b",
    "llama-3.1-70b": "llama3_1_70b",
    "llama3-8b": "llama3_8b",
    "llama-3-8b": "llama3_8b",
    "llama-3.1-8b": "llama3_1_8b",
    "llama2-7b": "llama2_7b",
    "llama-2-7b": "llama2_7b",
    "llama2-13b": "llama2_13b",
    "llama2-70b": "llama2_70b",
    "gpt-oss-120b": "gpt_oss_120b",
    "qwen3-30b": "qwen3_30b_a3b",
    "qwen3-moe-30b": "qwen3_30b_a3b",
    "qwen3-235b": "qwen3_235b_a22b",
    "mixtral-8x22b": "mixtral_8x22b",
    "deepseek-v2-lite": "deepseek_v2_lite",
    "deepseek-v2": "deepseek_v2",
    "deepseekv3": "deepseek_v3",
    "deepseek-v3": "deepseek_v3",
}
"""Beginnings of names, in the order in which they are tried."""

MPT = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 64),
    "70b": (80, 8192, 64),
}
"""Layers, width and heads (llm-foundry, scripts/train/yamls/pretrain)."""

GPT2_STYLE = {"2.7B": (32, 2560, 32), "6.7B": (32, 4096, 32), "13B": (40, 5120, 40)}
"""The same of Modalities' models."""

UNKNOWN = ("Nemotron", "V4", "Next")
"""In names of models with other layers than ours."""


def model_of(row: dict[str, Any]) -> ModelConfig | str:
    """The model, or why there is none."""
    name, sizes = str(row["model"]), row.get("arch") or {}
    if any(word in name for word in UNKNOWN):
        return "layers that are not ours"
    if name.startswith("MPT-"):
        return _gpt(*MPT[name[4:]], vocab=50368)
    if name.startswith("GPT2-style"):
        known = GPT2_STYLE.get(name.rpartition("-")[2])
        return _gpt(*known, vocab=50304, tied=False) if known else "architecture not given"
    if name.startswith("GPT3-5B"):
        return _gpt(24, 4096, 32, vocab=51200)
    if {"layers", "hidden", "heads", "ffn", "kv_heads"} <= sizes.keys():
        return _gpt(
            sizes["layers"],
            sizes["hidden"],
            sizes["heads"],
            vocab=sizes["vocab"],
            tied=False,
            intermediate_size=sizes["ffn"],
            num_key_value_heads=sizes["kv_heads"],
        )
    if sizes.get("heads") and sizes.get("hidden"):
        return _gpt(sizes["layers"], sizes["hidden"], sizes["heads"], vocab=sizes.get("vocab", 51200))
    return _ours(name.lower().replace("_", "-").replace(" ", "-"), row)


def _ours(name: str, row: dict[str, Any]) -> ModelConfig | str:
    if name.startswith(("deepseekv3-4layers", "deepseekv2-4layers")):
        model = _file("deepseek_v3" if "v3" in name else "deepseek_v2")
        assert model.moe is not None
        moe = model.moe.model_copy(update={"first_k_dense_replace": 1})
        return model.model_copy(update={"num_hidden_layers": 4, "moe": moe})
    if name.startswith("kimi-k2"):
        model = _file("deepseek_v3")
        assert model.moe is not None
        moe = model.moe.model_copy(update={"num_experts": 384, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1})
        heads = {"num_attention_heads": 64, "num_key_value_heads": 64}
        return model.model_copy(update={"vocab_size": 163840, "moe": moe, **heads})
    found = next((file for beginning, file in OURS.items() if name.startswith(beginning)), None)
    if found is None:
        return "a model that is not among ours"
    model = _file(found)
    # Megatron-Bridge pads its pipeline with the layer of multi-token prediction.
    extra = found == "deepseek_v3" and "Bridge" in row["source"]
    return model.model_copy(update={"num_hidden_layers": model.num_hidden_layers + 1}) if extra else model


def _file(name: str) -> ModelConfig:
    return ModelConfig.model_validate(yaml.safe_load((CONF / f"model/{name}.yaml").read_text(encoding="utf-8")))


def _gpt(layers: int, hidden: int, heads: int, *, vocab: int, tied: bool = True, **changes: int) -> ModelConfig:
    """Two matrices of 4h are three of 8h/3 here, which have as many weights and FLOPs."""
    values = {
        "name": "gpt",
        "family": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
        "intermediate_size": round(8 * hidden / 3),
        "vocab_size": vocab,
        "max_position_embeddings": 10**7,
        "tie_word_embeddings": tied,
    }
    return ModelConfig.model_validate({**values, **changes})
