"""The effective training time, against the formula worked out by hand and a search for its maximum."""

from math import inf, sqrt

import numpy as np
import pytest

from primus_app.plan.reliability import DAY_S, best_interval, effective_ratio, expect


def test_ratio_is_the_formula_worked_out_by_hand() -> None:
    # 1000 nodes at 3.8e-3 a day fail 3.8 times a day; half of 30 min and 5 min are lost each time: 3.8 · 20 / 1440 = 0.05278.
    # Writing 1 min for every 30 costs a factor of 30 / 31.
    assert effective_ratio(3.8, 300.0, 1800.0, 60.0) == pytest.approx((1 - 3.8 * 20 / 1440) * 30 / 31, rel=1e-12)


@pytest.mark.parametrize(("failures", "restart", "write"), [(3.8, 300.0, 60.0), (0.03, 600.0, 5.0), (60.0, 120.0, 20.0)])
def test_best_interval_is_where_a_search_finds_the_maximum(failures: float, restart: float, write: float) -> None:
    tried = np.geomspace(1, 1e6, 200_001)
    found = tried[np.argmax([effective_ratio(failures, restart, interval, write) for interval in tried])]
    assert best_interval(failures, restart, write) == pytest.approx(found, rel=2e-4)


def test_best_interval_of_rare_failures_is_youngs() -> None:
    assert best_interval(1e-6, 300.0, 60.0) == pytest.approx(sqrt(2 * 60.0 * DAY_S / 1e-6), rel=1e-3)


def test_what_never_fails_loses_only_the_writing() -> None:
    assert effective_ratio(0.0, 300.0, 600.0, 60.0) == pytest.approx(10 / 11)
    assert best_interval(0.0, 300.0, 60.0) == inf


def test_without_checkpoints_a_failure_loses_everything() -> None:
    assert effective_ratio(1.0, 300.0, inf, 60.0) == 0.0
    assert effective_ratio(0.0, 300.0, inf, 60.0) == 1.0


def test_failures_are_those_of_the_time_that_the_run_takes_with_them() -> None:
    found = expect(100, 3.8e-3, 300.0, 1800.0, 0.0, 10 * DAY_S)
    assert found.failures_per_day == pytest.approx(0.38)
    assert found.failures == pytest.approx(0.38 * 10 / found.effective)


def test_more_failures_than_time_leave_nothing() -> None:
    found = expect(16_384, 1.0, 600.0, 1800.0, 60.0, DAY_S)
    assert found.effective == 0.0
    assert found.failures is None
