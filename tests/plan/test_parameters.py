"""Counts of weights against transformers' models and published figures; FLOPs against published utilisation."""

from pathlib import Path

import pytest
import yaml

import primus_app
from primus_app.config.schema import ModelConfig
from primus_app.plan.parameters import count_parameters, slides, training_flops_per_token

CONF = Path(primus_app.__file__).parents[1] / "conf"

PARAMETERS = {
    "llama2_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama2_70b": 68_976_648_192,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_1_8b": 8_030_261_248,
    "llama3_1_70b": 70_553_706_496,
    "llama3_1_405b": 405_853_388_800,
    "llama3_3_70b": 70_553_706_496,
    "llama3_2_1b": 1_235_814_400,
    "llama3_2_3b": 3_212_749_824,
    "qwen2_5_0_5b": 494_032_768,
    "qwen2_5_1_5b": 1_543_714_304,
    "qwen2_5_3b": 3_085_938_688,
    "qwen2_5_7b": 7_615_616_512,
    "qwen2_5_14b": 14_770_033_664,
    "qwen2_5_32b": 32_763_876_352,
    "qwen2_5_72b": 72_706_203_648,
    "qwen3_0_6b": 596_049_920,
    "qwen3_1_7b": 1_720_574_976,
    "qwen3_4b": 4_022_468_096,
    "qwen3_8b": 8_190_735_360,
    "qwen3_14b": 14_768_307_200,
    "qwen3_32b": 32_762_123_264,
    "qwen3_30b_a3b": 30_532_122_624,
    "qwen3_235b_a22b": 235_093_634_560,
    "mixtral_8x7b": 46_702_792_704,
    "mixtral_8x22b": 140_620_634_112,
    "deepseek_v2_lite": 15_706_484_224,
    "deepseek_v2": 235_741_434_880,
    "deepseek_v3": 671_026_404_352,
    "gpt_oss_20b": 20_914_757_184,
    "gpt_oss_120b": 116_829_156_672,
}
"""Distinct weights (tied embeddings once), counted on the meta device over transformers' model of each public config.json."""


def model_of(name: str, **changes: object) -> ModelConfig:
    base = yaml.safe_load((CONF / "config.yaml").read_text())["model"]
    return ModelConfig(**{**base, **yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text()), **changes})


@pytest.mark.parametrize("name", PARAMETERS)
def test_count_is_exact(name: str) -> None:
    assert count_parameters(model_of(name)).total == PARAMETERS[name]


@pytest.mark.parametrize("name", ["llama3_2_1b", "mixtral_8x7b", "deepseek_v3", "gpt_oss_20b", "qwen3_moe_tiny"])
def test_parts_add_up(name: str) -> None:
    count = count_parameters(model_of(name))
    assert count.total == count.embedding + count.output + count.final_norm + sum(layer.total for layer in count.layers)
    for layer in count.layers:
        parts = layer.attention + layer.mlp + layer.router + layer.shared_experts + layer.experts + layer.norms
        assert layer.total == parts


def test_parts_of_llama3_8b_by_hand() -> None:
    count = count_parameters(model_of("llama3_8b"))
    layer = count.layers[0]
    assert layer.attention == 4096 * 4096 * 2 + 4096 * 1024 * 2
    assert layer.mlp == 3 * 4096 * 14336
    assert layer.norms == 2 * 4096
    assert (count.embedding, count.output, count.final_norm) == (128256 * 4096, 128256 * 4096, 4096)


def test_tied_table_counts_once_but_multiplies() -> None:
    tied, untied = count_parameters(model_of("llama3_2_1b")), count_parameters(model_of("llama3_2_1b", tie_word_embeddings=False))
    assert tied.output == 0
    assert untied.total - tied.total == tied.embedding
    assert untied.active_no_embedding == tied.active_no_embedding


def test_first_layers_of_deepseek_v3_are_dense() -> None:
    layers = count_parameters(model_of("deepseek_v3")).layers
    assert [layer.mlp > 0 for layer in layers[:4]] == [True, True, True, False]
    assert [layer.experts > 0 for layer in layers[:4]] == [False, False, False, True]


# gpt-oss model card (arXiv 2508.10925), table 1: active parameters with the unembedding and without the embedding.
@pytest.mark.parametrize(("name", "billions"), [("gpt_oss_120b", 5.13), ("gpt_oss_20b", 3.61)])
def test_active_without_embedding_as_published(name: str, billions: float) -> None:
    assert round(count_parameters(model_of(name)).active_no_embedding / 1e9, 2) == billions


# Qwen3 (arXiv 2505.09388), Mixtral (arXiv 2401.04088), DeepSeek-V2 (arXiv 2405.04434): activated parameters as stated.
@pytest.mark.parametrize(("name", "billions"), [("qwen3_235b_a22b", 22), ("mixtral_8x7b", 13), ("deepseek_v2", 21)])
def test_active_as_published(name: str, billions: int) -> None:
    assert round(count_parameters(model_of(name)).active / 1e9) == billions


def test_dense_model_is_wholly_active() -> None:
    count = count_parameters(model_of("llama3_8b"))
    assert count.active == count.total
    assert count.active_no_embedding == count.total - count.embedding


def test_flops_are_6n_plus_12lhs_where_heads_fill_the_width() -> None:
    model = model_of("llama3_1_405b")
    n = count_parameters(model).active_no_embedding
    assert training_flops_per_token(model, 8192) == 6 * n + 12 * 126 * 16384 * 8192


def test_flops_give_torchtitans_published_utilisation() -> None:
    """torchtitan docs/performance.md (2024): Llama 3.1 405B, 8192 tokens, 109 tokens/s per H100 of 989 TFLOP/s, MFU 29 %."""
    assert round(training_flops_per_token(model_of("llama3_1_405b"), 8192) * 109 / 989e12, 2) == 0.29


def test_flops_of_wide_heads_use_the_heads() -> None:
    model = model_of("qwen3_0_6b")
    attention = training_flops_per_token(model, 4096) - 6 * count_parameters(model).active_no_embedding
    assert attention == 12 * 28 * (16 * 128) * 4096


def test_flops_of_latent_attention_use_the_heads_of_the_product() -> None:
    model = model_of("deepseek_v3")
    attention = training_flops_per_token(model, 4096) - 6 * count_parameters(model).active_no_embedding
    assert attention == 6 * 61 * 128 * ((128 + 64) + 128) * 4096


def test_flops_of_a_sliding_layer_stop_at_the_window() -> None:
    model = model_of("gpt_oss_20b")
    attention = training_flops_per_token(model, 4096) - 6 * count_parameters(model).active_no_embedding
    assert attention == 12 * (64 * 64) * (12 * 128 + 12 * 4096)
    assert [slides(model, index) for index in range(3)] == [True, False, True]
    short = training_flops_per_token(model, 64) - 6 * count_parameters(model).active_no_embedding
    assert short == 12 * (64 * 64) * 24 * 64
