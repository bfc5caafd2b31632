"""FLOPs by convention, against formulas that others have published."""

from pathlib import Path

import pytest
import yaml

import primus_app
from primus_app.config.schema import ModelConfig
from primus_app.plan.flops import CONVENTIONS, flops_by_convention

CONF = Path(primus_app.__file__).parents[1] / "conf"
LLAMA = ModelConfig.model_validate(yaml.safe_load((CONF / "model/llama3_1_405b.yaml").read_text()))
LAYERS, WIDTH, VOCAB, LENGTH = 24, 3072, 51200, 2048


def gpt() -> ModelConfig:
    """GPT's 12 h² weights in a layer: as many heads for keys, and three matrices of 8h/3 in place of two of 4h."""
    sizes = {"num_hidden_layers": LAYERS, "hidden_size": WIDTH, "vocab_size": VOCAB, "intermediate_size": 8 * WIDTH // 3}
    heads = {"num_attention_heads": 24, "num_key_value_heads": 24, "head_dim": 128}
    return LLAMA.model_copy(update=sizes | heads)


def test_hardware_flops_under_full_recomputation_are_megatrons() -> None:
    # Narayanan et al., arXiv 2104.04473, equation 3: 96 B s l h² (1 + s / 6h + V / 16 l h) for B samples; norms are not in it.
    published = 96 * LAYERS * WIDTH**2 * (1 + LENGTH / (6 * WIDTH) + VOCAB / (16 * LAYERS * WIDTH))
    assert flops_by_convention(gpt(), LENGTH, "full")["hardware"] == pytest.approx(published, rel=2e-4)


def test_hardware_flops_under_selective_recomputation_are_korthikantis() -> None:
    # arXiv 2205.05198, appendix A: 72 B L s h² (1 + s / 4.5 h + V / 12 h L), recomputing the core of attention; 72 (1 + s / 6h …) without.
    for recompute, part in (("selective", 4.5), ("none", 6.0)):
        published = 72 * LAYERS * WIDTH**2 * (1 + LENGTH / (part * WIDTH) + VOCAB / (12 * LAYERS * WIDTH))
        assert flops_by_convention(gpt(), LENGTH, recompute)["hardware"] == pytest.approx(published, rel=2e-4)  # type: ignore[arg-type]


def test_layers_that_are_not_recomputed_are_not_counted_twice() -> None:
    full, half, none = (flops_by_convention(gpt(), LENGTH, "full", share)["hardware"] for share in (1.0, 0.5, 0.0))
    assert (full + none) / 2 == half
    assert none == flops_by_convention(gpt(), LENGTH, "none")["hardware"]


def test_causal_is_half_of_attention_and_the_embedding_is_six_more_for_each_weight() -> None:
    found = flops_by_convention(LLAMA, 8192, "none")
    assert found["full"] - found["causal"] == 6 * 126 * 16384 * 8192
    assert found["full_with_embedding"] - found["full"] == 6 * 128256 * 16384
    assert found["hardware"] == found["full"]


def test_each_convention_says_what_it_is() -> None:
    assert set(flops_by_convention(LLAMA, 8192, "none")) == set(CONVENTIONS)
