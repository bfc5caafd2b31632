"""The arithmetic of legal neighbours, against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from primus_app.plan.neighbours import count, divisors, nearest, nearest_multiples, offer


@given(st.integers(1, 5000))
def test_divisors_are_all_numbers_that_leave_no_rest(number: int) -> None:
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


@given(st.sets(st.integers(1, 50)), st.integers(1, 50))
def test_nearest_leaves_no_candidate_between(candidates: set[int], near: int) -> None:
    found = nearest(candidates, near)
    assert set(found) <= candidates - {near}
    below, above = [v for v in found if v < near], [v for v in found if v > near]
    assert below == sorted(v for v in candidates if v < near)[-1:]
    assert above == sorted(v for v in candidates if v > near)[:1]


@given(st.integers(1, 30), st.integers(1, 200), st.integers(1, 60), st.none() | st.integers(1, 300))
def test_nearest_multiples_are_multiples_within_bounds(unit: int, near: int, least: int, most: int | None) -> None:
    found = nearest_multiples(unit, near, at_least=least, at_most=most)
    for value in found:
        assert value % unit == 0
        assert value != near
        assert value >= least
        assert most is None or value <= most
    legal = [v for v in range(unit, 600, unit) if v >= least and (most is None or v <= most) and v != near]
    assert bool(found) == bool(legal)


def test_offers_read_as_overrides() -> None:
    assert offer("parallel.tp", (2, 4)) == ("parallel.tp=2 or parallel.tp=4",)
    assert offer("parallel.tp", (2,), "why") == ("parallel.tp=2 (why)",)
    assert offer("parallel.tp", ()) == ()


def test_counts_have_the_right_plural() -> None:
    assert [count(1, "node"), count(2, "node"), count(2, "micro batch"), count(1000, "step")] == [
        "1 node",
        "2 nodes",
        "2 micro batches",
        "1,000 steps",
    ]
