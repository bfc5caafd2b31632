"""Packing by lengths: every example once, no window too full, and few windows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_app.data.instructions.packing import one_each, pack


def contents(lengths: list[int], capacity: int) -> list[list[int]]:
    packing = pack(np.array(lengths, dtype=np.int64), capacity)
    return [packing.examples[begin:end].tolist() for begin, end in zip(packing.starts[:-1], packing.starts[1:], strict=True)]


def by_hand(lengths: list[int], capacity: int) -> int:
    """Windows of best fit decreasing, by looking at each window."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [place for place, room in enumerate(rooms) if room >= length]
        if fitting:
            rooms[min(fitting, key=lambda place: rooms[place])] -= length
        else:
            rooms.append(capacity - length)
    return len(rooms)


@given(
    st.integers(1, 40).flatmap(lambda capacity: st.tuples(st.just(capacity), st.lists(st.integers(1, capacity), min_size=1, max_size=60)))
)
def test_every_example_once_in_windows_that_hold_it(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    windows = contents(lengths, capacity)
    assert sorted(example for window in windows for example in window) == list(range(len(lengths)))
    assert all(window and window == sorted(window) for window in windows)
    assert all(sum(lengths[example] for example in window) <= capacity for window in windows)
    assert len(windows) == by_hand(lengths, capacity)


@pytest.mark.parametrize(
    ("lengths", "windows"),
    [([10], [[0]]), ([5, 5], [[0, 1]]), ([3, 10, 7], [[1], [0, 2]]), ([6, 5, 4, 5], [[0, 2], [1, 3]]), ([10, 10], [[0], [1]])],
)
def test_by_hand(lengths: list[int], windows: list[list[int]]) -> None:
    assert contents(lengths, 10) == windows


def test_one_each() -> None:
    packing = one_each(3)
    assert (packing.examples.tolist(), packing.starts.tolist(), len(packing)) == ([0, 1, 2], [0, 1, 2, 3], 3)
