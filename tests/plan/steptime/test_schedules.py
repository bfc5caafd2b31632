"""The simulated pipelines against the closed forms of their papers."""

from collections import Counter

import pytest

from primus_app.plan.steptime.schedules import Durations, Schedule, bubble_share, order, simulate, total_s


def equal(stages: int, forward: float = 1.0, backward: float = 2.0, weight: float = 0.0, send: float = 0.0) -> Durations:
    return Durations((forward,) * stages, (backward,) * stages, (weight,) * stages, send)


@pytest.mark.parametrize(("pp", "micro_batches"), [(1, 3), (2, 2), (4, 4), (4, 16), (8, 5)])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_one_forward_one_backward_takes_m_and_pp_less_one_passes(schedule: Schedule, pp: int, micro_batches: int) -> None:
    total = total_s(simulate(schedule, pp, 1, micro_batches, equal(pp)))
    assert total == pytest.approx((micro_batches + pp - 1) * 3)
    assert total == pytest.approx(3 * micro_batches * (1 + bubble_share(schedule, pp, 1, micro_batches)))


@pytest.mark.parametrize(("pp", "vpp", "micro_batches"), [(2, 2, 4), (4, 2, 8), (4, 4, 16), (8, 3, 8), (2, 12, 32)])
def test_interleaving_divides_the_bubble_by_the_virtual_stages(pp: int, vpp: int, micro_batches: int) -> None:
    total = total_s(simulate("interleaved", pp, vpp, micro_batches, equal(pp * vpp)))
    assert total == pytest.approx(3 * vpp * micro_batches * (1 + bubble_share("interleaved", pp, vpp, micro_batches)))


@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 4), (4, 4), (4, 12), (8, 24)])
def test_zero_bubble_idles_a_third_of_1f1b(pp: int, micro_batches: int) -> None:
    total = total_s(simulate("zero_bubble", pp, 1, micro_batches, equal(pp, 1, 1, 1)))
    assert total == pytest.approx(3 * micro_batches * (1 + bubble_share("zero_bubble", pp, 1, micro_batches)))


@pytest.mark.parametrize("weight", [0.3, 1.0, 1.5])
def test_zero_bubble_is_never_slower_than_1f1b(weight: float) -> None:
    split = total_s(simulate("zero_bubble", 4, 1, 9, equal(4, 1, 2 - weight, weight, 0.1)))
    assert split <= total_s(simulate("1f1b", 4, 1, 9, equal(4, 1, 2, 0, 0.1))) + 1e-9


@pytest.mark.parametrize(("schedule", "vpp"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 3), ("zero_bubble", 1)])
def test_each_pass_is_done_once_and_after_what_it_needs(schedule: Schedule, vpp: int) -> None:
    pp, micro_batches = 4, 6
    events = simulate(schedule, pp, vpp, micro_batches, equal(pp * vpp, weight=0.5, send=0.25))
    counts = Counter((event.rank, event.work) for event in events)
    assert set(counts.values()) == {1}
    assert len(events) == pp * vpp * micro_batches * (3 if schedule == "zero_bubble" else 2)
    ends = {(event.work.kind, event.work.chunk * pp + event.rank, event.work.micro_batch): event.end_s for event in events}
    for event in events:
        stage = event.work.chunk * pp + event.rank
        if event.work.kind == "forward" and stage:
            assert event.start_s >= ends["forward", stage - 1, event.work.micro_batch] + 0.25
        if event.work.kind == "backward" and stage < pp * vpp - 1:
            assert event.start_s >= ends["backward", stage + 1, event.work.micro_batch] + 0.25


def test_ranks_hold_no_more_micro_batches_than_stages_follow_them() -> None:
    """1F1B's and ZB-H1's bound on activations: pp − rank micro batches, at the last rank one."""
    for schedule in ("1f1b", "zero_bubble"):
        for rank in range(4):
            held = most = 0
            for work in order(schedule, rank, 4, 1, 12):
                held += {"forward": 1, "backward": -1, "weight": 0}[work.kind]
                most = max(most, held)
            assert most == 4 - rank


def test_the_slowest_stage_sets_the_pace() -> None:
    slow_end = Durations((1.0, 1.0, 1.0, 1.5), (2.0, 2.0, 2.0, 3.0), (0.0,) * 4)
    assert total_s(simulate("1f1b", 4, 1, 32, slow_end)) == pytest.approx(32 * 4.5 + 3 * 3)
