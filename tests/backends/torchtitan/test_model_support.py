"""What TorchTitan cannot represent is refused by name, and nothing that it can is."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_app.backends.torchtitan.model_support import check_model_support

CONF = Path(__file__).parents[3] / "conf" / "model"
UNSUPPORTED_FAMILIES = ("qwen2_5", "mixtral")
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
LOW_HIGH = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
MSCALE = {"mscale": 1.0, "mscale_all_dim": 1.0}


@pytest.mark.parametrize("name", sorted(path.stem for path in CONF.glob("*.yaml") if path.stem != "hf"))
def test_published_models(name: str, model_of: Any) -> None:
    problems = check_model_support(model_of(name))
    if name.startswith(UNSUPPORTED_FAMILIES):
        assert [problem.where for problem in problems] == ["model.family"]
    elif name == "deepseek_v2":
        assert [problem.where for problem in problems] == ["model.moe.topk_method"]
    else:
        assert problems == []


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("llama_tiny", {"attention_bias": True}, "model.attention_bias"),
    ("llama_tiny", {"attention_qkv_bias": True}, "model.attention_qkv_bias"),
    ("llama_tiny", {"sliding_window": 64}, "model.sliding_window"),
    ("llama_tiny", {"attention_sinks": True}, "model.attention_sinks"),
    ("llama_tiny", {"swiglu_limit": 7.0}, "model.swiglu_limit"),
    ("llama_tiny", {"qk_norm": True}, "model.qk_norm"),
    ("llama_tiny", {"head_dim": 48}, "model.head_dim"),
    ("llama_tiny", {"num_key_value_heads": 3}, "model.num_key_value_heads"),
    ("llama_tiny", {"rope_scaling": YARN | MSCALE}, "model.rope_scaling"),
    ("llama_tiny", {"rope_scaling": {**YARN, "rope_type": "linear"}}, "model.rope_scaling"),
    ("llama_tiny", {"rope_scaling": LLAMA3 | {"low_freq_factor": 1.0}}, "model.rope_scaling.high_freq_factor"),
    ("llama_tiny", {"rope_scaling": LLAMA3 | LOW_HIGH | {"mscale": 1.0}}, "model.rope_scaling.mscale"),
    ("llama_tiny", {"rope_scaling": LLAMA3 | LOW_HIGH | {"truncate": True}}, "model.rope_scaling.truncate"),
    ("qwen3_tiny", {"rope_scaling": LLAMA3 | LOW_HIGH}, "model.rope_scaling"),
    ("qwen3_tiny", {"qk_norm": False}, "model.qk_norm"),
    ("qwen3_moe_tiny", {"moe": None}, "model.moe"),
    ("gpt_oss_tiny", {"attention_sinks": False}, "model.attention_sinks"),
    ("gpt_oss_tiny", {"sliding_window": None}, "model.sliding_window"),
    ("gpt_oss_tiny", {"rope_scaling": YARN | {"mscale": 1.0}}, "model.rope_scaling.mscale"),
    ("deepseek_v3_tiny", {"mla": None}, "model.mla"),
    ("deepseek_v3_tiny", {"tie_word_embeddings": True}, "model.tie_word_embeddings"),
    ("deepseek_v3_tiny", {"num_key_value_heads": 2}, "model.num_key_value_heads"),
    ("deepseek_v3_tiny", {"rope_scaling": YARN}, "model.rope_scaling.mscale"),
    ("deepseek_v3_tiny", {"rope_scaling": YARN | MSCALE | {"mscale": 0.7}}, "model.rope_scaling.mscale"),
    ("deepseek_v3_tiny", {"rope_scaling": YARN | MSCALE | {"factor": 1.0}}, "model.rope_scaling.factor"),
]


@pytest.mark.parametrize(("name", "changes", "where"), CASES)
def test_each_feature_is_refused_by_name(name: str, changes: dict[str, Any], where: str, model_of: Any) -> None:
    problems = check_model_support(model_of(name, **changes))
    assert [problem.where for problem in problems] == [where]
    assert problems[0].fix


MOE_CASES: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3_moe_tiny", {"num_shared_experts": 1}, "model.moe.num_shared_experts"),
    ("qwen3_moe_tiny", {"expert_bias": True}, "model.moe.expert_bias"),
    ("qwen3_moe_tiny", {"expert_bias_terms": True}, "model.moe.expert_bias_terms"),
    ("qwen3_moe_tiny", {"num_experts_per_tok": 9}, "model.moe.num_experts_per_tok"),
    ("qwen3_moe_tiny", {"n_group": 2}, "model.moe.n_group"),
    ("qwen3_moe_tiny", {"topk_group": 2}, "model.moe.topk_group"),
    ("deepseek_v3_tiny", {"topk_method": "group_limited_greedy"}, "model.moe.topk_method"),
    ("deepseek_v3_tiny", {"n_group": 3}, "model.moe.n_group"),
    ("deepseek_v3_tiny", {"n_group": 8}, "model.moe.n_group"),
    ("deepseek_v3_tiny", {"topk_group": 5}, "model.moe.topk_group"),
    ("deepseek_v3_tiny", {"topk_group": 1}, "model.moe.topk_group"),
]


@pytest.mark.parametrize(("name", "changes", "where"), MOE_CASES)
def test_each_routing_is_refused_by_name(name: str, changes: dict[str, Any], where: str, model_of: Any) -> None:
    model = model_of(name)
    model = model.model_copy(update={"moe": model.moe.model_copy(update=changes)})
    assert [problem.where for problem in check_model_support(model)] == [where]


def test_tied_embeddings_have_one_stage(model_of: Any) -> None:
    model = model_of("llama_tiny", tie_word_embeddings=True)
    assert check_model_support(model) == []
    assert [problem.where for problem in check_model_support(model, pp=2)] == ["model.tie_word_embeddings"]


def test_an_unsupported_model_is_a_users_error(model_of: Any) -> None:
    from primus_app.backends.torchtitan.model import build_model_spec
    from primus_app.config.errors import UserError

    with pytest.raises(UserError, match=r"model\.family: TorchTitan 0\.3\.0 has no model"):
        build_model_spec(model_of("mixtral_8x7b"), seq_len=8, cpu=True, compute="fp32")


def test_asking_needs_neither_torch_nor_torchtitan() -> None:
    code = (
        "import sys, primus_app.backends.torchtitan.model_support, primus_app.backends.torchtitan.device as d; "
        "assert d.DEVICE_PATCHES; sys.exit('torch' in sys.modules or 'torchtitan' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=CONF.parents[1], check=False).returncode == 0
