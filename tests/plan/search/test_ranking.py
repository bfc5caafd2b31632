"""The ranking of layouts, on scores whose order is known."""

import numpy as np
import pytest

from primus_app.plan.search.ranking import Scores, best, frontier, overrides_of
from primus_app.plan.workload import Layout

GIB = 2**30
# tp, memory in GiB, compute and bubble in seconds
ROWS = ((1, 90, 1.0, 0.0), (2, 40, 1.125, 0.375), (4, 40, 1.25, 0.25), (8, 20, 1.75, 0.125), (16, 60, 2.0, 0.5))


def scores() -> Scores:
    tp, memory, compute, bubble = (np.array(column) for column in zip(*ROWS, strict=True))
    one = np.ones_like(tp)
    layouts = Layout(tp, one, one, one, one, one, one, one, one, one, one, 0 * one, 0 * one)
    return Scores(layouts, memory * float(GIB), {"compute": compute, "bubble": bubble})


def test_the_fastest_that_fit_and_of_equals_in_time_and_memory_the_first() -> None:
    found = best(scores(), 80 * GIB, 10)
    assert [each.degrees["tp"] for each in found] == [2, 4, 8, 16]
    assert [each.time_s for each in found] == pytest.approx([1.5, 1.5, 1.875, 2.5])
    assert found[0].memory_gib == 40


def test_each_says_what_makes_it_slower_than_the_one_before() -> None:
    first, second, third, _ = best(scores(), 80 * GIB, 10)
    assert first.slower == {}
    assert second.slower == pytest.approx({"compute": 0.125, "bubble": -0.125})
    assert third.slower == pytest.approx({"compute": 0.5, "bubble": -0.125})


def test_no_more_than_asked_for_and_none_that_does_not_fit() -> None:
    assert len(best(scores(), 80 * GIB, 2)) == 2
    assert best(scores(), 10 * GIB, 10) == []


def test_the_frontier_is_what_nothing_beats_in_both() -> None:
    # 16 is beaten by 2 in both; 2 and 4 are equal, and one of them is enough.
    assert [(each.memory_gib, each.degrees["tp"]) for each in frontier(scores())] == [(20, 8), (40, 2), (90, 1)]


def test_divisions_of_dp_alone_are_one_layout() -> None:
    two = np.array([2, 2])
    one = np.ones_like(two)
    shards = np.array([1, 4])
    layouts = Layout(two, one, one, one, one, one, 4 // shards, shards, one, one, one, one, 0 * one)
    found = best(Scores(layouts, np.array([8.0, 2.0]) * GIB, {"compute": np.array([1.0, 1.1])}), 80 * GIB, 10)
    assert [each.degrees["dp_shard"] for each in found] == [1]


def test_a_layout_is_typed_as_a_whole() -> None:
    typed = overrides_of(best(scores(), 80 * GIB, 1)[0].degrees)
    assert typed == [
        *("parallel.tp=2", "parallel.pp=1", "parallel.vpp=1", "parallel.cp=1", "parallel.ep=1", "parallel.etp=1"),
        *("parallel.dp_replicate=1", "parallel.dp_shard=1", "parallel.schedule=1f1b"),
        *("training.micro_batch_size=1", "training.recompute=none"),
    ]
