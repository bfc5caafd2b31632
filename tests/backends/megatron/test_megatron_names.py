"""Megatron's fused tensors in rows of Hugging Face's: query groups, gate above up, and what a tensor-parallel rank has of them."""

from collections.abc import Callable

import pytest

from primus_app.backends.expert_stacks import engine_weights
from primus_app.backends.hf_names import hf_buffers
from primus_app.backends.megatron.names import Origins
from primus_app.config.schema import ModelConfig

FAMILIES = [
    "llama_tiny",
    "qwen3_tiny",
    "qwen3_moe_tiny",
    "deepseek_v3_tiny",
    "qwen2_5_0_5b",
    "mixtral_8x7b",
    "deepseek_v2_lite",
    "gpt_oss_tiny",
]
QKV = "decoder.layers.0.self_attention.linear_qkv.weight"


def rows(origins: Origins, name: str, rank: int = 0, ranks: int = 1) -> list[tuple[str, int, int]]:
    return [(block.weight.name.rpartition("layers.")[2], block.first, block.stop) for block in origins.of(name).share(rank, ranks)]


def test_query_key_and_value_lie_group_by_group(model_of: Callable[..., ModelConfig]) -> None:
    """llama_tiny has 4 query heads of 32 rows in 2 groups."""
    found = rows(Origins(model_of("llama_tiny")), QKV)
    assert found == [
        ("0.self_attn.q_proj.weight", 0, 64),
        ("0.self_attn.k_proj.weight", 0, 32),
        ("0.self_attn.v_proj.weight", 0, 32),
        ("0.self_attn.q_proj.weight", 64, 128),
        ("0.self_attn.k_proj.weight", 32, 64),
        ("0.self_attn.v_proj.weight", 32, 64),
    ]


def test_a_rank_has_whole_groups(model_of: Callable[..., ModelConfig]) -> None:
    found = rows(Origins(model_of("llama_tiny")), QKV, rank=1, ranks=2)
    assert found == [("0.self_attn.q_proj.weight", 64, 128), ("0.self_attn.k_proj.weight", 32, 64), ("0.self_attn.v_proj.weight", 32, 64)]


def test_a_rank_has_as_much_gate_as_up_projection(model_of: Callable[..., ModelConfig]) -> None:
    found = rows(Origins(model_of("llama_tiny")), "decoder.layers.3.mlp.linear_fc1.weight", rank=1, ranks=2)
    assert found == [("3.mlp.gate_proj.weight", 176, 352), ("3.mlp.up_proj.weight", 176, 352)]


def test_the_output_layer_is_the_table_where_they_are_tied(model_of: Callable[..., ModelConfig]) -> None:
    tied = Origins(model_of("llama_tiny", tie_word_embeddings=True))
    assert tied.of("output_layer.weight").blocks[0].weight.name == "model.embed_tokens.weight"
    assert "output_layer.weight" not in tied.names()


def test_mixtrals_experts_have_its_names(model_of: Callable[..., ModelConfig]) -> None:
    """w1 is the gate, w3 the up projection (transformers' conversion of Mixtral)."""
    found = rows(Origins(model_of("mixtral_8x7b")), "decoder.layers.1.mlp.experts.local_experts.7.linear_fc1.weight")
    assert [name for name, _, _ in found] == ["1.block_sparse_moe.experts.7.w1.weight", "1.block_sparse_moe.experts.7.w3.weight"]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_weight_is_somewhere_once(model_of: Callable[..., ModelConfig], name: str) -> None:
    model = model_of(name)
    origins = Origins(model)
    covered: dict[str, int] = {}
    for there in origins.names():
        for block in origins.of(there).blocks:
            covered[block.weight.name] = covered.get(block.weight.name, 0) + block.num_rows
    assert covered == {weight.name: weight.shape[0] for weight in (*engine_weights(model), *hf_buffers(model))}


def test_an_unknown_tensor_is_named(model_of: Callable[..., ModelConfig]) -> None:
    with pytest.raises(KeyError, match="nothing"):
        Origins(model_of("llama_tiny")).of("decoder.layers.0.nothing.weight")
