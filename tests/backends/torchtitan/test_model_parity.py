"""TorchTitan's models with seeded weights, against transformers' with the same weights: sizes and logits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from primus_app.backends.hf_names import hf_parameters, initial_std
from primus_app.backends.seeded import seeded_normal
from primus_app.config.schema import ModelConfig

pytestmark = pytest.mark.slow

SEED = 1234
# Wider than the default 0.02, so that logits and scores are far from 0 and a wrong epsilon or rotation shows.
WIDE = {"init_std": 0.06}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
YARN = {"rope_type": "yarn", "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 128}
GPT_YARN = YARN | {"truncate": True}
MSCALE = {"mscale": 0.7, "mscale_all_dim": 0.7}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama_tiny", {}),
    "llama tied": ("llama_tiny", {"tie_word_embeddings": True}),
    "llama with llama3 rope": ("llama_tiny", {"rope_scaling": LLAMA3}),
    "qwen3": ("qwen3_tiny", {"head_dim": 48}),
    "qwen3 tied": ("qwen3_tiny", {"tie_word_embeddings": True}),
    "qwen3_moe": ("qwen3_moe_tiny", {}),
    "deepseek_v3": ("deepseek_v3_tiny", {}),
    "deepseek_v3 with yarn": ("deepseek_v3_tiny", {"rope_scaling": YARN | MSCALE}),
    "deepseek_v3 with yarn, not truncated": ("deepseek_v3_tiny", {"rope_scaling": YARN | MSCALE | {"truncate": False}}),
    "deepseek_v3 without experts": ("deepseek_v3_tiny", {"moe": None}),
    "gpt_oss": ("gpt_oss_tiny", {}),
    "gpt_oss, truncated, other window and bound": ("gpt_oss_tiny", {"rope_scaling": GPT_YARN, "sliding_window": 5, "swiglu_limit": 0.1}),
    "gpt_oss, positions not stretched": ("gpt_oss_tiny", {"rope_scaling": None}),
}
MOE_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_moe, weights not normalised, first layer dense": ("qwen3_moe_tiny", {"norm_topk_prob": False, "first_k_dense_replace": 1}),
    "deepseek_v3, one group": ("deepseek_v3_tiny", {"n_group": 1, "topk_group": 1}),
    "deepseek_v2": ("deepseek_v3_tiny", {}),
}


@pytest.mark.parametrize(("name", "changes"), CASES.values(), ids=CASES.keys())
def test_logits_are_those_of_transformers(name: str, changes: dict[str, Any], model_of: Any, agree: Callable[..., None]) -> None:
    agree(model_of(name, **WIDE, **changes))


@pytest.mark.parametrize("case", MOE_CASES)
def test_logits_with_other_routing_are_those_of_transformers(case: str, model_of: Any, agree: Callable[..., None]) -> None:
    name, changes = MOE_CASES[case]
    model = model_of(name, **WIDE)
    assert model.moe is not None
    if case == "deepseek_v2":
        changes = {
            "score": "softmax",
            "topk_method": "greedy",
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": False,
            "expert_bias": False,
        }
        model = model.model_copy(update={"family": "deepseek_v2"})
    agree(model.model_copy(update={"moe": model.moe.model_copy(update=changes)}))


@pytest.fixture
def agree(seeded_model: Callable[..., Any], hf_config_of: Callable[..., Any], tmp_path: Path) -> Callable[[ModelConfig], None]:
    """``agree(model)``: the same seeded weights give the same float32 logits in both implementations."""

    def check(model: ModelConfig) -> None:
        tokens = torch.randint(0, model.vocab_size, (4, 64), generator=torch.Generator().manual_seed(0))
        positions = torch.arange(64).expand(4, 64).contiguous()
        ours = seeded_model(model, SEED).eval()
        theirs = load_with_transformers(model, hf_config_of(model), tmp_path)
        with torch.no_grad():
            logits = ours(tokens, positions, ours.get_attention_masks(positions))
            expected = theirs(tokens).logits
        assert expected.abs().max() > 0.1
        assert (logits - expected).abs().max() <= 5e-6

    return check


def load_with_transformers(model: ModelConfig, config: Any, folder: Path) -> Any:
    """transformers' model of the seeded weights, through a checkpoint on disk."""
    from safetensors.numpy import save_file
    from transformers import AutoModelForCausalLM

    save_file({weight.name: _initial(model, weight) for weight in hf_parameters(model)}, folder / "model.safetensors", {"format": "pt"})
    config.save_pretrained(folder)
    loaded, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
    )
    missing = {name for name in report["missing_keys"] if not name.endswith(("e_score_correction_bias", "lm_head.weight"))}
    assert not missing, missing
    assert not report["unexpected_keys"]
    return loaded.eval()


def _initial(model: ModelConfig, weight: Any) -> Any:
    constants = {"ones": torch.ones(weight.shape).numpy(), "zeros": torch.zeros(weight.shape).numpy()}
    return constants.get(weight.kind, seeded_normal(SEED, weight.name, weight.shape, initial_std(model, weight.kind)))


@pytest.mark.parametrize(
    "name", ["llama_tiny", "qwen3_tiny", "qwen3_moe_tiny", "deepseek_v3_tiny", "gpt_oss_tiny", "llama3_2_1b", "llama3_8b", "qwen3_0_6b"]
)
def test_number_of_weights_is_that_of_transformers(
    name: str, model_of: Callable[..., ModelConfig], hf_config_of: Callable[..., Any]
) -> None:
    from transformers import AutoModelForCausalLM

    from primus_app.backends.torchtitan.model import build_model_spec

    model = model_of(name)
    with torch.device("meta"):
        ours = build_model_spec(model, seq_len=256, cpu=True, compute="fp32").model.build()
        theirs = AutoModelForCausalLM.from_config(hf_config_of(model))
    assert sum(weight.numel() for weight in ours.parameters()) == theirs.num_parameters()
