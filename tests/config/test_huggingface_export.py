"""config.json as it is written: what is read back is the same model, and transformers takes it for the right class."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_app.config.huggingface import load_huggingface
from primus_app.config.huggingface_export import config_json
from primus_app.config.schema import ModelConfig

CONF = Path(__file__).parents[2] / "conf" / "model"
NAMES = sorted(file.stem for file in CONF.glob("*.yaml") if file.stem != "hf")
YARN = {
    "rope_type": "yarn",
    "factor": 16.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
    "truncate": False,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "llama_tiny": {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "original_max_position_embeddings": 1024}, "init_std": 0.01},
    "qwen3_tiny": {"tie_word_embeddings": True, "head_dim": 48, "rms_norm_eps": 1e-6},
    "qwen2_5_0_5b": {"sliding_window": 64},
    "mixtral_8x7b": {"sliding_window": 64},
    "deepseek_v3_tiny": {"rope_scaling": YARN},
}


def model_of(name: str, **changes: Any) -> ModelConfig:
    return ModelConfig.model_validate({**yaml.safe_load((CONF / f"{name}.yaml").read_text()), **changes})


def written(model: ModelConfig, folder: Path) -> Path:
    place = folder / model.name
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config_json(model, end_of_document=256)))
    return place


CASES = [*((name, {}) for name in NAMES), *VARIANTS.items()]


@pytest.mark.parametrize(("name", "changes"), CASES, ids=[*NAMES, *(f"{name} changed" for name in VARIANTS)])
def test_what_is_written_reads_back_as_the_same_model(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model = model_of(name, **changes)
    assert ModelConfig.model_validate(load_huggingface(str(written(model, tmp_path)))) == model


@pytest.mark.parametrize(
    "name", [name for name in NAMES if "tiny" in name] + ["qwen2_5_0_5b", "mixtral_8x7b", "gpt_oss_20b", "deepseek_v2_lite"]
)
def test_transformers_takes_it_for_the_class_of_the_family(name: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model = model_of(name, num_hidden_layers=2)
    found = AutoConfig.from_pretrained(written(model, tmp_path))
    assert (found.model_type, found.eos_token_id, found.bos_token_id) == (model.family, 256, None)
    assert found.rms_norm_eps == model.rms_norm_eps
    assert found.rope_parameters["rope_theta"] == model.rope_theta
    with torch.device("meta"):
        assert type(AutoModelForCausalLM.from_config(found)).__name__ == config_json(model)["architectures"][0]
