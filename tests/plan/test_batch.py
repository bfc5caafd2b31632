"""Batch arithmetic: closed forms, and the neighbours that are offered for what does not come out."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_app.config.errors import Problem
from primus_app.config.schema import TrainingConfig
from primus_app.plan.batch import Rhythm, is_legal, make_batch, resolve_steps


def training(**changes: Any) -> TrainingConfig:
    return TrainingConfig(**{"steps": 10, "seq_len": 32, "global_batch_size": 16, "micro_batch_size": 2, **changes})


def only_problem(recipe: TrainingConfig, dp: int, rhythm: Rhythm = Rhythm(), schedule: str = "1f1b") -> Problem:  # noqa: B008
    batch, problems = make_batch(recipe, dp, rhythm, schedule)
    assert batch is None
    assert len(problems) == 1
    return problems[0]


def test_llama3_405b_batch() -> None:
    # Llama 3 405B: 16M tokens a batch as 2048 sequences of 8192, dp 128 (arXiv 2407.21783, table 4: 16 sequences a replica).
    batch, problems = make_batch(training(seq_len=8192, global_batch_size=2048, micro_batch_size=1, steps=1), 128)
    assert problems == []
    assert batch is not None
    assert (batch.accumulation, batch.tokens_per_step, batch.total_tokens) == (16, 2**24, 2**24)


def test_tokens_are_rounded_up_to_whole_steps() -> None:
    batch, _ = make_batch(training(steps=None, tokens=1000), 2)
    assert batch is not None
    assert (batch.steps, batch.total_tokens, batch.accumulation) == (2, 1024, 4)
    assert resolve_steps(training(steps=None, tokens=1024)) == 2
    assert resolve_steps(training(steps=None, tokens=1025)) == 3


def test_both_lengths_are_one_too_many() -> None:
    problem = only_problem(training(tokens=1000), 1)
    assert problem.where == "training.steps"
    assert problem.what == "steps 10 and tokens 1000 are both given; exactly one says how long to train"
    assert problem.fix == (
        "training.steps=null (trains 1,000 tokens: 2 steps of 512)",
        "training.tokens=null (trains 10 steps: 5,120 tokens)",
    )


def test_no_length_is_one_too_few() -> None:
    problem = only_problem(training(steps=None), 1)
    assert "neither" in problem.what
    assert problem.fix == ("training.steps=200 or training.tokens=102400 (200 steps of 512 tokens)",)


def test_the_length_is_checked_without_a_mesh() -> None:
    assert make_batch(training(), None) == (None, [])
    assert len(make_batch(training(steps=None), None)[1]) == 1


def test_a_global_batch_that_does_not_divide() -> None:
    problem = only_problem(training(global_batch_size=24, micro_batch_size=8), 2)
    assert problem.where == "training.micro_batch_size"
    assert problem.what == "global_batch_size 24 is not divisible by micro_batch_size 8 x dp 2 = 16"
    assert problem.fix == (
        "training.micro_batch_size=6 or training.micro_batch_size=12 (same loss curve)",
        "training.global_batch_size=16 or training.global_batch_size=32",
    )


def test_no_micro_batch_helps_where_dp_does_not_divide_the_global_batch() -> None:
    assert only_problem(training(global_batch_size=16), 3).fix == (
        "training.global_batch_size=12 or training.global_batch_size=18",
        "training.global_batch_size=15 training.micro_batch_size=1 or training.global_batch_size=18 training.micro_batch_size=1",
    )


def test_the_interleaved_schedule_needs_a_multiple_of_pp() -> None:
    problem = only_problem(training(global_batch_size=12, micro_batch_size=2), 1, Rhythm(4, 4), "interleaved")
    assert "is 6 micro batches a step, and the interleaved schedule needs a multiple of pp 4" in problem.what
    assert problem.fix == (
        "training.micro_batch_size=1 or training.micro_batch_size=3 (same loss curve)",
        "training.global_batch_size=8 or training.global_batch_size=16",
    )


def test_a_schedule_that_needs_a_micro_batch_for_each_stage() -> None:
    problem = only_problem(training(global_batch_size=8, micro_batch_size=4), 1, Rhythm(at_least=4))
    assert "is 2 micro batches a step, and the 1f1b schedule needs at least one for each of pp 4" in problem.what
    assert problem.fix == ("training.micro_batch_size=2 (same loss curve)", "training.global_batch_size=16")


@pytest.mark.parametrize(("accumulation", "is_accepted"), [(3, False), (4, True), (6, False), (8, True)])
def test_a_rhythm_is_a_multiple_and_a_least(accumulation: int, is_accepted: bool) -> None:
    assert Rhythm(multiple_of=4, at_least=4).accepts(accumulation) is is_accepted


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 12), st.sampled_from([Rhythm(), Rhythm(4, 4), Rhythm(1, 3)]))
def test_every_neighbour_is_legal(size: int, micro: int, dp: int, rhythm: Rhythm) -> None:
    batch, problems = make_batch(training(global_batch_size=size, micro_batch_size=micro), dp, rhythm)
    assert (batch is None) == bool(problems) == (not is_legal(size, micro, dp, rhythm))
    if batch is not None:
        assert batch.accumulation * batch.micro_batch_size * batch.dp == batch.global_batch_size
        return
    assert problems[0].fix
    for choice in " or ".join(re.sub(r" \(.*\)", "", line) for line in problems[0].fix).split(" or "):
        changes = {key: int(value) for key, value in re.findall(r"training\.(\w+)=(\d+)", choice)}
        changed = {"global_batch_size": size, "micro_batch_size": micro, **changes}
        assert make_batch(training(**changed), dp, rhythm)[1] == []
