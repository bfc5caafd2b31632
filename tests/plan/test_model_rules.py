"""A model that contradicts its family or itself is refused, with the legal numbers nearest to it."""

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

import primus_app
from primus_app.config.schema import ModelConfig
from primus_app.config.schema.model import Family
from primus_app.plan.model_rules import FAMILY_KEYS, check_model

CONF = Path(primus_app.__file__).parents[1] / "conf"


def model_of(name: str, **changes: Any) -> ModelConfig:
    """``changes`` name keys as model's dotted keys do, with __ for the dot."""
    base = yaml.safe_load((CONF / "config.yaml").read_text())["model"]
    data = {**base, **yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text())}
    for key, value in changes.items():
        section, _, leaf = key.rpartition("__")
        (data[section] if section else data)[leaf] = value
    return ModelConfig(**data)


def test_every_family_has_rules() -> None:
    assert set(FAMILY_KEYS) == set(get_args(Family))


FAMILY_MISTAKES = [
    ("llama_tiny", {"qk_norm": True}, "model.qk_norm", "true, but family llama has false", "qwen3"),
    ("llama_tiny", {"sliding_window": 128}, "model.sliding_window", "128, but family llama has null", "model.sliding_window=null"),
    ("qwen3_tiny", {"qk_norm": False}, "model.qk_norm", "false, but family qwen3 has true", "model.qk_norm=true"),
    ("qwen2_5_0_5b", {"attention_qkv_bias": False}, "model.attention_qkv_bias", "false, but family qwen2", "attention_qkv_bias=true"),
    ("qwen3_moe_tiny", {"moe": None}, "model.moe", "null, but family qwen3_moe has experts", "conf/model/"),
    ("deepseek_v3_tiny", {"mla": None}, "model.mla", "null, but family deepseek_v3 has latent attention", "conf/model/"),
    ("gpt_oss_20b", {"attention_sinks": False}, "model.attention_sinks", "false, but family gpt_oss", "attention_sinks=true"),
    ("gpt_oss_20b", {"sliding_window": None}, "model.sliding_window", "null, but family gpt_oss needs it", "128"),
    ("gpt_oss_20b", {"swiglu_limit": None}, "model.swiglu_limit", "null, but family gpt_oss needs it", "7.0"),
    ("gpt_oss_20b", {"intermediate_size": 1440}, "model.moe.moe_intermediate_size", "2880", "model.intermediate_size=2880"),
    ("mixtral_8x7b", {"moe__norm_topk_prob": False}, "model.moe.norm_topk_prob", "false, but family mixtral", "norm_topk_prob=true"),
    ("mixtral_8x7b", {"moe__num_shared_experts": 1}, "model.moe.num_shared_experts", "1, but family mixtral has 0", "deepseek_v2"),
    ("deepseek_v3_tiny", {"moe__score": "softmax"}, "model.moe.score", "softmax, but family deepseek_v3 has sigmoid", "score=sigmoid"),
    ("qwen3_moe_tiny", {"sliding_window_alternate": True}, "model.sliding_window_alternate", "true, but family qwen3_moe", "gpt_oss"),
]

SIZE_MISTAKES = [
    ("llama3_8b", {"num_key_value_heads": 5}, "model.num_key_value_heads", "5 does not divide the 32", "num_key_value_heads=4 or model"),
    ("llama3_8b", {"num_key_value_heads": 64}, "model.num_key_value_heads", "64 does not divide the 32", "num_key_value_heads=32"),
    ("llama_tiny", {"head_dim": 33}, "model.head_dim", "33 is odd", "model.head_dim=32 or model.head_dim=34"),
    ("llama_tiny", {"head_dim": 1}, "model.head_dim", "1 is odd", "model.head_dim=2"),
    ("deepseek_v3_tiny", {"head_dim": 15, "mla__qk_rope_head_dim": 15}, "model.mla.qk_rope_head_dim", "15 is odd", "qk_rope_head_dim=14"),
    ("deepseek_v3_tiny", {"head_dim": 32}, "model.head_dim", "which is 16", "model.head_dim=16"),
    ("deepseek_v3_tiny", {"num_key_value_heads": 2}, "model.num_key_value_heads", "each of the 4 query heads", "num_key_value_heads=4"),
    ("qwen3_moe_tiny", {"moe__num_experts_per_tok": 9}, "model.moe.num_experts_per_tok", "9 of 8 experts", "num_experts_per_tok=8"),
    ("qwen3_moe_tiny", {"moe__n_group": 2}, "model.moe.n_group", "2 has no effect", "model.moe.n_group=1"),
    ("deepseek_v3", {"moe__n_group": 7}, "model.moe.n_group", "7 groups do not divide 256", "n_group=4 or model.moe.n_group=8"),
    ("deepseek_v3_tiny", {"moe__topk_group": 5}, "model.moe.topk_group", "5 of 4 groups", "topk_group=4"),
    ("deepseek_v3_tiny", {"moe__topk_group": 1}, "model.moe.topk_group", "1 groups of 2 experts are 2, fewer than the 4", "topk_group=2"),
    ("deepseek_v3_tiny", {"moe__n_group": 8, "moe__topk_group": 8}, "model.moe.n_group", "8 groups of 8 experts", "n_group=4"),
    ("deepseek_v3_tiny", {"moe__first_k_dense_replace": 5}, "model.moe.first_k_dense_replace", "5 dense layers", "replace=4"),
]

ROPE_MISTAKES = [
    ("llama3_1_8b", {"rope_scaling__low_freq_factor": None}, "model.rope_scaling.low_freq_factor", "llama3 needs it", "1.0"),
    ("llama3_1_8b", {"rope_scaling__low_freq_factor": 4.0}, "model.rope_scaling.low_freq_factor", "4 is not below", "exchange"),
    ("llama3_1_8b", {"rope_scaling__beta_fast": 32.0}, "model.rope_scaling.beta_fast", "no effect with rope_type llama3", "beta_fast=null"),
    ("gpt_oss_20b", {"rope_scaling__truncate": None}, "model.rope_scaling.truncate", "yarn needs it", "true"),
    ("llama3_1_8b", {"max_position_embeddings": 4096}, "model.rope_scaling.original_max_position_embeddings", "8192 is longer", "shorter"),
]


@pytest.mark.parametrize(("name", "changes", "where", "what", "fix"), [*FAMILY_MISTAKES, *SIZE_MISTAKES, *ROPE_MISTAKES])
def test_one_mistake_is_one_problem(name: str, changes: dict[str, Any], where: str, what: str, fix: str) -> None:
    problems = check_model(model_of(name, **changes))
    assert [problem.where for problem in problems] == [where]
    assert what in problems[0].what
    assert fix in "\n".join(problems[0].fix)


def test_selection_bias_is_needed_by_noaux_tc() -> None:
    problems = check_model(model_of("deepseek_v3_tiny", moe__expert_bias=False))
    assert {problem.where for problem in problems} == {"model.moe.expert_bias"}


def test_all_mistakes_are_found_at_once() -> None:
    model = model_of("qwen3_moe_tiny", head_dim=31, qk_norm=False, moe__num_experts_per_tok=9)
    assert {problem.where for problem in check_model(model)} == {"model.head_dim", "model.qk_norm", "model.moe.num_experts_per_tok"}
