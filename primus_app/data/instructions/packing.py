"""Which examples share a window: best fit in decreasing order of their lengths, decided by the lengths alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Packing:
    """Window w holds ``examples[starts[w] : starts[w + 1]]``, int64, in ascending order."""

    examples: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1


def pack(lengths: NDArray[np.int64], capacity: int) -> Packing:
    """Examples of ``lengths`` [n], each from 1 to ``capacity`` tokens, in windows of ``capacity``.

    The longest first, each into the window with the least room that it fits into; a new one where it fits into none. In O(n log n),
    since room is counted: https://en.wikipedia.org/wiki/Best-fit_bin_packing.
    """
    order = np.argsort(-lengths, kind="stable")
    window_of = np.empty(len(lengths), dtype=np.int64)
    open_windows: list[list[int]] = [[] for _ in range(capacity + 1)]  # by room
    rooms = 0  # bit r is set where a window has room r
    count = 0
    for example, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            window = open_windows[room].pop()
            if not open_windows[room]:
                rooms &= ~(1 << room)
        else:
            room, window, count = capacity, count, count + 1
        window_of[example] = window
        open_windows[room - length].append(window)
        rooms |= 1 << (room - length)
    return Packing(np.argsort(window_of, kind="stable"), np.searchsorted(np.sort(window_of), np.arange(count + 1)))


def one_each(number: int) -> Packing:
    """Every example in a window of its own."""
    return Packing(np.arange(number), np.arange(number + 1))
