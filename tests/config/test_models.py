"""Every file of conf/model/ is a sound model; some are counted against transformers' own class."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import primus_app
from primus_app.config.schema import MlaConfig, ModelConfig, MoeConfig
from primus_app.plan.model_rules import ROPE_KEYS, check_model
from primus_app.plan.parameters import count_parameters

CONF = Path(primus_app.__file__).parents[1] / "conf"
FILES = {file.stem: file for file in sorted((CONF / "model").glob("*.yaml")) if file.stem != "hf"}
TINY = [name for name in FILES if name.endswith("_tiny")]


def given(name: str) -> dict[str, Any]:
    data = yaml.safe_load(FILES[name].read_text())
    assert isinstance(data, dict)
    return data


def model_of(name: str) -> ModelConfig:
    return ModelConfig(**{**yaml.safe_load((CONF / "config.yaml").read_text())["model"], **given(name)})


def test_all_files_are_there() -> None:
    assert len(FILES) == 33 + 5


@pytest.mark.parametrize("name", FILES)
def test_file_is_a_sound_model(name: str) -> None:
    model = model_of(name)
    assert model.name == name
    assert check_model(model) == []
    assert FILES[name].read_text().startswith("# ")


@pytest.mark.parametrize("name", FILES)
def test_every_key_of_a_block_can_be_overridden(name: str) -> None:
    """Hydra refuses an override of a key that is not in the file."""
    data = given(name)
    for block, schema in (("moe", MoeConfig), ("mla", MlaConfig)):
        if block in data:
            assert set(data[block]) == set(schema.model_fields)
    if "rope_scaling" in data:
        rope = data["rope_scaling"]
        needed, optional = ROPE_KEYS[rope["rope_type"]]
        assert set(rope) == {"rope_type", "factor", "original_max_position_embeddings", *needed, *optional}


@pytest.mark.parametrize("name", TINY)
def test_tiny_models_have_about_a_million_parameters(name: str) -> None:
    assert 0.8e6 < count_parameters(model_of(name)).total < 1.2e6


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TINY, "llama3_2_1b", "qwen3_0_6b", "qwen3_30b_a3b", "gpt_oss_20b", "deepseek_v2_lite"])
def test_count_equals_transformers(name: str) -> None:
    assert count_parameters(model_of(name)).total == count_in_transformers(model_of(name))


def count_in_transformers(model: ModelConfig) -> int:
    """Distinct weights of transformers' model on the meta device; buffers such as the selection bias are not weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    own = ("name", "path", "family", "init", "init_std", "moe", "mla", "rope_scaling", "sliding_window_alternate")
    words = {key: value for key, value in model.model_dump().items() if key not in own and value is not None}
    if model.moe is not None:
        words |= model.moe.model_dump(exclude={"num_shared_experts"}) | {"n_shared_experts": model.moe.num_shared_experts}
        words |= {"n_routed_experts": words["num_experts"], "num_local_experts": words.pop("num_experts")}
    if model.mla is not None:
        words |= model.mla.model_dump()
    words["rope_parameters"] = {"rope_type": "default", "rope_theta": model.rope_theta}
    with torch.device("meta"):
        twin = AutoModelForCausalLM.from_config(AutoConfig.for_model(model.family, **words))
    return sum(weight.numel() for weight in twin.parameters())
