"""Micro batches in flight, against a count over the schedules themselves."""

from collections.abc import Callable
from typing import Any

import pytest

from primus_app.plan.memory.in_flight import in_flight
from primus_app.plan.workload import Layout

Of = Callable[..., Any]


def most_alive(warm_up: int, total: int) -> int:
    """The most that is alive when ``warm_up`` forward passes come first, then one forward and one backward in turn."""
    alive = most = warm = min(warm_up, total)
    for _ in range(total - warm):
        alive += 1
        most = max(most, alive)
        alive -= 1
    return most


@pytest.mark.parametrize("pp", [1, 2, 8])
@pytest.mark.parametrize("total", [1, 4, 32])
def test_1f1b_is_counted(pp: int, total: int, workload_of: Of, layout_of: Of) -> None:
    layout = layout_of(pp=pp, num_microbatches=total)
    found = [in_flight(workload_of(), layout, stage) for stage in range(pp)]
    assert found == [most_alive(pp - stage - 1, total) for stage in range(pp)]


@pytest.mark.parametrize("vpp", [2, 5])
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_interleaved_warms_up_as_megatron_does(vpp: int, stage: int, workload_of: Of, layout_of: Of) -> None:
    # Narayanan et al., arXiv 2104.04473, section 2.2; each virtual micro batch is 1/vpp of the rank's layers.
    layout: Layout = layout_of(pp=4, vpp=vpp, num_microbatches=16)
    warm_up = (4 - stage - 1) * 2 + (vpp - 1) * 4
    assert in_flight(workload_of(schedule="interleaved"), layout, stage) == most_alive(warm_up, 16 * vpp) / vpp


def test_the_others(workload_of: Of, layout_of: Of) -> None:
    layout = layout_of(pp=4, num_microbatches=16)
    assert in_flight(workload_of(schedule="gpipe"), layout, 3) == 16
    assert in_flight(workload_of(schedule="zero_bubble"), layout, 3) == 4
    assert in_flight(workload_of(), layout_of(num_microbatches=16), 0) == 1
