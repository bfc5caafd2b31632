"""Contradictions in the recipe: warm-up, rates and the balancing of experts."""

from typing import Any, Literal

import pytest

from primus_app.config.compose import Request
from primus_app.config.errors import Problem
from primus_app.config.load import load_config
from primus_app.config.schema import ModelConfig, MoeConfig, OptimizerConfig, TrainingConfig
from primus_app.plan.recipe_rules import check_balancing, check_effects, check_recompute, check_schedule
from primus_app.plan.stages import Stage


def model(moe: MoeConfig | None) -> ModelConfig:
    return ModelConfig(
        name="m",
        family="llama",
        num_hidden_layers=2,
        hidden_size=8,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=4,
        intermediate_size=16,
        vocab_size=32,
        max_position_embeddings=64,
        moe=moe,
    )


def experts(**changes: Any) -> MoeConfig:
    return MoeConfig(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, **changes)


def test_the_defaults_do_not_contradict_each_other() -> None:
    assert check_schedule(OptimizerConfig(), 200) == []
    assert check_schedule(OptimizerConfig(warmup_steps=200), 200) == []
    assert check_schedule(OptimizerConfig(), None) == []


def test_how_many_layers_are_recomputed() -> None:
    stages = [Stage(index, 0, layers, 1, 1, 0, index) for index, layers in enumerate((3, 4))]
    assert check_recompute(TrainingConfig(recompute="full", recompute_layers=4), stages) == []
    assert check_recompute(TrainingConfig(recompute="full", recompute_layers=9), []) == []
    [idle] = check_recompute(TrainingConfig(recompute="selective", recompute_layers=2), stages)
    assert idle.what == "has no effect with recompute=selective"
    [many] = check_recompute(TrainingConfig(recompute="full", recompute_layers=5), stages)
    assert many.what == "5 is more than the 4 layers of the largest pipeline stage"
    assert many.fix[0] == "training.recompute_layers=4"


def test_a_warm_up_longer_than_training() -> None:
    assert check_schedule(OptimizerConfig(warmup_steps=60), 50) == [
        Problem(
            "optimizer.warmup_steps",
            "warmup_steps 60 is longer than the schedule of 50 steps (the length of training)",
            ("optimizer.warmup_steps=5 or optimizer.warmup_steps=50",),
        )
    ]


def test_a_warm_up_longer_than_the_schedule_given() -> None:
    (problem,) = check_schedule(OptimizerConfig(warmup_steps=60, schedule_steps=40), 500)
    assert problem.what == "warmup_steps 60 is longer than the schedule of 40 steps (optimizer.schedule_steps)"
    assert check_schedule(OptimizerConfig(warmup_steps=60, schedule_steps=400), 50) == []


def test_a_least_rate_above_the_peak() -> None:
    (problem,) = check_schedule(OptimizerConfig(lr=1e-4, min_lr=3e-4), 200)
    assert problem == Problem(
        "optimizer.min_lr",
        "min_lr 0.0003 is above lr 0.0001, the peak it falls from",
        ("optimizer.min_lr=1e-05 or optimizer.min_lr=0.0001",),
    )


@pytest.mark.parametrize("balancing", ["expert_bias", "aux_loss"])
def test_balancing_has_no_effect_on_a_dense_model(balancing: Literal["expert_bias", "aux_loss"]) -> None:
    assert check_balancing(TrainingConfig(load_balancing=balancing), model(None)) == [
        Problem("training.load_balancing", f"{balancing} has no effect: m has no experts", ("training.load_balancing=none",))
    ]


def test_expert_bias_needs_a_bias_to_move() -> None:
    (problem,) = check_balancing(TrainingConfig(load_balancing="expert_bias"), model(experts()))
    assert "model.moe.expert_bias is false" in problem.what
    assert problem.fix == ("training.load_balancing=none, or a model that has one, such as deepseek_v3",)
    assert check_balancing(TrainingConfig(load_balancing="expert_bias"), model(experts(expert_bias=True))) == []


@pytest.mark.parametrize("balancing", ["none", "aux_loss"])
def test_other_balancing_needs_experts_only(balancing: Literal["none", "aux_loss"]) -> None:
    assert check_balancing(TrainingConfig(load_balancing=balancing), model(experts())) == []


def test_a_lowest_rate_has_no_effect_on_a_constant_one() -> None:
    (problem,) = check_schedule(OptimizerConfig(schedule="constant", min_lr=1e-4), 200)
    assert problem.where == "optimizer.min_lr"
    assert check_schedule(OptimizerConfig(schedule="constant"), 200) == []


@pytest.mark.parametrize(
    ("overrides", "where"),
    [
        (("training.eval_every=0", "training.eval_steps=9"), "training.eval_steps"),
        (("checkpoint=none", "checkpoint.keep=7"), "checkpoint.keep"),
        (("checkpoint=none", "checkpoint.async=true"), "checkpoint.async"),
        (("model=qwen3_moe_tiny", "training.aux_loss_coefficient=0.1"), "training.aux_loss_coefficient"),
        (("data=mock", "data.cache_dir=/tmp"), "data.cache_dir"),
    ],
)
def test_what_another_setting_leaves_without_effect(overrides: tuple[str, ...], where: str) -> None:
    config = load_config(Request(overrides), hardware="cpu")
    assert [problem.where for problem in check_effects(config)] == [where]
    assert check_effects(load_config(Request(overrides[:1]), hardware="cpu")) == []
