"""The rate of each step against the closed forms of the design: step k counts from 1."""

import math

import pytest

from primus_app.config.schema import OptimizerConfig
from primus_app.plan.learning_rate import learning_rate, warmup_steps

PEAK, LOW = 2e-3, 2e-4


def optimizer(schedule: str, warmup: int | None = 4) -> OptimizerConfig:
    return OptimizerConfig(lr=PEAK, min_lr=LOW, warmup_steps=warmup, schedule=schedule)


def test_the_rise_is_linear_and_reaches_the_peak_at_its_last_step() -> None:
    assert [learning_rate(optimizer("cosine"), step, 24) for step in (1, 2, 3, 4)] == pytest.approx([PEAK * k / 4 for k in (1, 2, 3, 4)])


@pytest.mark.parametrize(
    ("schedule", "halfway"),
    [
        ("cosine", LOW + (PEAK - LOW) * 0.5 * (1 + math.cos(math.pi / 2))),
        ("linear", (PEAK + LOW) / 2),
        ("constant", PEAK),
        ("wsd", PEAK),
    ],
)
def test_halfway_and_at_the_end(schedule: str, halfway: float) -> None:
    """W = 4 and S = 24, so step 14 is half of the way and step 24 the end, after which nothing changes."""
    assert learning_rate(optimizer(schedule), 14, 24) == pytest.approx(halfway)
    end = PEAK if schedule == "constant" else LOW
    assert learning_rate(optimizer(schedule), 24, 24) == pytest.approx(end)
    assert learning_rate(optimizer(schedule), 99, 24) == pytest.approx(end)


def test_wsd_falls_over_the_last_fifth() -> None:
    """20 steps after the rise: step 20 still has the peak, step 22 is half of the way down."""
    assert learning_rate(optimizer("wsd"), 20, 24) == pytest.approx(PEAK)
    assert learning_rate(optimizer("wsd"), 22, 24) == pytest.approx((PEAK + LOW) / 2)


def test_a_tenth_of_the_peak_is_the_end_when_nothing_is_said() -> None:
    assert learning_rate(OptimizerConfig(lr=PEAK), 24, 24) == pytest.approx(PEAK / 10)


def test_a_tenth_of_the_schedule_is_the_rise_when_nothing_is_said() -> None:
    assert warmup_steps(optimizer("cosine", None), 200) == 20
    assert warmup_steps(optimizer("cosine", None), 9) == 0
    assert learning_rate(optimizer("cosine", None), 1, 9) < PEAK
    assert learning_rate(optimizer("constant", None), 1, 9) == PEAK
