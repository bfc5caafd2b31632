"""Experts in stacks, as gpt_oss has them on disk, and each on its own: transformers' GptOssExperts says which column is whose."""

from collections.abc import Callable

import pytest
import torch

from primus_app.backends.expert_stacks import apart, engine_weights, pieces_of, stacked
from primus_app.backends.hf_names import hf_parameters
from primus_app.backends.weight_sources import SeededWeights, Source
from primus_app.config.schema import ModelConfig

MLP = "model.layers.1.mlp.experts."


@pytest.fixture
def model(model_of: Callable[..., ModelConfig]) -> ModelConfig:
    return model_of("gpt_oss_tiny", num_hidden_layers=2)


class Drawn:
    """Normal numbers in every tensor, biases too."""

    def __init__(self, model: ModelConfig) -> None:
        torch.manual_seed(3)
        self.tensors = {weight.name: torch.randn(weight.shape) for weight in hf_parameters(model)}

    def whole(self, weight: object) -> torch.Tensor:
        return self.tensors[weight.name]  # type: ignore[attr-defined]

    def part(self, weight: object, rows: slice, columns: slice) -> torch.Tensor:
        whole = self.whole(weight)
        return whole.view(-1, whole.shape[-1])[rows, columns]


def test_gate_and_up_projection_have_every_other_column_transposed(model: ModelConfig) -> None:
    """``gate_up @ x`` is split as gate = [..., ::2], up = [..., 1::2] there, and x multiplies from the left."""
    drawn = Drawn(model)
    source, weights = apart(drawn, model), {weight.name: weight for weight in engine_weights(model)}
    stack, biases = drawn.tensors[f"{MLP}gate_up_proj"], drawn.tensors[f"{MLP}gate_up_proj_bias"]
    assert torch.equal(source.whole(weights[f"{MLP}3.gate_proj.weight"]), stack[3, :, ::2].T)
    assert torch.equal(source.whole(weights[f"{MLP}3.up_proj.weight"]), stack[3, :, 1::2].T)
    assert torch.equal(source.whole(weights[f"{MLP}3.up_proj.bias"]), biases[3, 1::2])
    assert torch.equal(source.whole(weights[f"{MLP}7.down_proj.weight"]), drawn.tensors[f"{MLP}down_proj"][7].T)
    assert torch.equal(source.part(weights[f"{MLP}3.up_proj.weight"], slice(5, 9), slice(2, 100)), stack[3, 2:100, 11:19:2].T)


def test_a_part_of_a_seeded_stack_is_the_same_as_in_the_whole(model: ModelConfig) -> None:
    source, seeded = apart(SeededWeights(model, 5), model), SeededWeights(model, 5)
    piece = pieces_of(model)[f"{MLP}2.gate_proj.weight"]
    whole = seeded.whole(piece.stack)[2, :, ::2].T
    assert torch.equal(source.whole(piece.weight), whole)
    assert torch.equal(source.part(piece.weight, slice(60, 64), slice(0, 7)), whole[60:, :7])


def test_put_together_again_they_are_the_stacks(model: ModelConfig) -> None:
    drawn = Drawn(model)
    again: Source = stacked(apart(drawn, model), model)
    for weight in hf_parameters(model):
        assert torch.equal(again.whole(weight), drawn.whole(weight)), weight.name
    stack = pieces_of(model)[f"{MLP}0.gate_proj.weight"].stack
    rows, columns = slice(100, 300), slice(3, 40)
    assert torch.equal(again.part(stack, rows, columns), drawn.part(stack, rows, columns))


def test_other_families_are_as_they_are(model_of: Callable[..., ModelConfig]) -> None:
    other = model_of("qwen3_moe_tiny")
    source = SeededWeights(other, 5)
    assert apart(source, other) is source
    assert stacked(source, other) is source
    assert list(engine_weights(other)) == list(hf_parameters(other))
