"""Names and shapes of weights, against what transformers writes to disk."""

from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from primus_app.backends.hf_names import hf_parameters, initial_std
from primus_app.config.schema import ModelConfig

pytestmark = pytest.mark.slow

MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
MLA = {"q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24}
SIZES: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "vocab_size": 96,
    "max_position_embeddings": 128,
}
GPT_OSS = {
    "attention_bias": True,
    "attention_sinks": True,
    "sliding_window": 16,
    "swiglu_limit": 7.0,
    "moe": MOE | {"expert_bias_terms": True},
}
DEEPSEEK = MOE | {"num_shared_experts": 2, "first_k_dense_replace": 1}
CASES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-tied-bias": {"tie_word_embeddings": True, "attention_bias": True},
    "qwen2": {"attention_qkv_bias": True},
    "qwen3": {"qk_norm": True, "head_dim": 24},
    "qwen3_moe": {"qk_norm": True, "moe": MOE | {"first_k_dense_replace": 1}},
    "mixtral": {"moe": MOE},
    "deepseek_v2": {"num_key_value_heads": 4, "mla": MLA, "moe": DEEPSEEK},
    "deepseek_v3": {"num_key_value_heads": 4, "mla": MLA | {"q_lora_rank": 24}, "moe": DEEPSEEK},
    "deepseek_v3-bias": {"num_key_value_heads": 4, "mla": MLA | {"q_lora_rank": 24}, "moe": DEEPSEEK, "attention_bias": True},
    "gpt_oss": GPT_OSS,
}


def small(case: str) -> ModelConfig:
    return ModelConfig.model_validate({"name": case, "family": case.split("-")[0], **SIZES, **CASES[case]})


@pytest.mark.parametrize("case", CASES)
def test_names_and_shapes_are_those_that_transformers_writes(case: str, hf_config_of: Callable[..., Any], tmp_path: Path) -> None:
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    model = small(case)
    AutoModelForCausalLM.from_config(hf_config_of(model)).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        on_disk = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - not a dict
    weights = {name: shape for name, shape in on_disk.items() if not name.endswith("e_score_correction_bias")}
    assert {weight.name: weight.shape for weight in hf_parameters(model)} == weights


@pytest.mark.parametrize("case", CASES)
def test_names_are_unique(case: str) -> None:
    names = [weight.name for weight in hf_parameters(small(case))]
    assert len(names) == len(set(names))


# Sizes as transformers counts its own models' parameters on the meta device; the model cards round the same numbers.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama3_8b", 8_030_261_248),
        ("llama3_1_405b", 405_853_388_800),
        ("llama3_2_1b", 1_235_814_400),
        ("qwen2_5_7b", 7_615_616_512),
        ("qwen3_0_6b", 596_049_920),
        ("qwen3_30b_a3b", 30_532_122_624),
        ("mixtral_8x7b", 46_702_792_704),
        ("deepseek_v2_lite", 15_706_484_224),
        ("deepseek_v3", 671_026_404_352),
    ],
)
def test_sizes_of_published_models(name: str, parameters: int, model_of: Callable[..., ModelConfig]) -> None:
    assert sum(weight.size for weight in hf_parameters(model_of(name))) == parameters


def test_residual_outputs_start_smaller() -> None:
    model = small("deepseek_v3")
    residual = {weight.name for weight in hf_parameters(model) if weight.kind == "residual_output"}
    ends = ("self_attn.o_proj.weight", "down_proj.weight")
    assert residual == {weight.name for weight in hf_parameters(model) if weight.name.endswith(ends)}
    assert initial_std(model, "residual_output") == pytest.approx(0.02 / sqrt(6))
    assert initial_std(model, "normal") == 0.02


@pytest.mark.parametrize("case", CASES)
def test_norms_start_at_one_and_biases_at_zero(case: str) -> None:
    for weight in hf_parameters(small(case)):
        if "norm" in weight.name:
            assert weight.kind == "ones"
        if weight.name.endswith("bias"):
            assert weight.kind == "zeros"
