"""The best of many layouts: the fastest that fit, why each next one is slower, and what more memory would buy."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from primus_app.plan.workload import RECOMPUTE, Layout

Floats = NDArray[np.float64]

LEAST_SHARE = 0.01
"""Of the time between two layouts, what a part has to make up to be told."""


@dataclass(frozen=True)
class Scores:
    """Of each layout: the bytes of its fullest device, and the parts of its step's time in seconds, which sum up to it."""

    layouts: Layout
    memory_bytes: Floats
    parts_s: Mapping[str, Floats]

    @property
    def time_s(self) -> Floats:
        return np.sum([*self.parts_s.values()], axis=0)


@dataclass(frozen=True)
class Candidate:
    """One layout of a ranking.

    Attributes:
        degrees: by the words of the configuration: tp, pp, … micro_batch_size, recompute.
        slower: what makes it slower than the one before it, in seconds by part, the largest first; faster parts are negative.
    """

    degrees: Mapping[str, int | str]
    time_s: float
    memory_gib: float
    slower: Mapping[str, float]


def best(scores: Scores, memory_limit: float, count: int) -> list[Candidate]:
    """The ``count`` fastest within ``memory_limit`` bytes; of equal times the one that takes less memory. Empty where none fits.

    Of layouts that differ in nothing but how dp is divided between dp_shard and dp_replicate, the first one alone.
    """
    fitting = np.flatnonzero(scores.memory_bytes <= memory_limit)
    time = scores.time_s
    order = fitting[np.lexsort((scores.memory_bytes[fitting], time[fitting]))]
    order = _without_siblings(scores.layouts, order)[:count]
    return [_candidate(scores, time, index, order[place - 1] if place else None) for place, index in enumerate(order)]


def frontier(scores: Scores) -> list[Candidate]:
    """Each layout that no other beats in both memory and time, from the least memory to the least time."""
    time = scores.time_s
    order = np.lexsort((time, scores.memory_bytes))
    fastest = np.minimum.accumulate(time[order])
    ahead = np.concatenate(([True], time[order][1:] < fastest[:-1])) if len(order) else np.zeros(0, dtype=bool)
    return [_candidate(scores, time, index, None) for index in order[ahead]]


def _without_siblings(layouts: Layout, order: NDArray[np.intp]) -> NDArray[np.intp]:
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch_size", "recompute")
    rows = np.stack([np.asarray(getattr(layouts, name))[order] for name in names], axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    return order[np.sort(first)]


def degrees_of(layouts: Layout, index: int) -> dict[str, int | str]:
    """One row of the arrays, in the configuration's words."""
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch_size")
    row: dict[str, int | str] = {name: int(getattr(layouts, name)[index]) for name in names}
    return row | {"recompute": RECOMPUTE[int(layouts.recompute[index])]}


def overrides_of(degrees: Mapping[str, int | str]) -> list[str]:
    """What to type for a layout; everything that it decides, so that nothing of another preset remains."""
    own = {"micro_batch_size", "recompute"}
    words = [f"parallel.{name}={value}" for name, value in degrees.items() if name not in own]
    schedule = "interleaved" if int(degrees["vpp"]) > 1 else "1f1b"
    training = [f"training.{name}={degrees[name]}" for name in ("micro_batch_size", "recompute")]
    return [*words, f"parallel.schedule={schedule}", *training]


def layout_words(degrees: Mapping[str, int | str]) -> str:
    """A layout on one line: tp8 pp4 shard2 micro1."""
    shown = [f"{name}{degrees[name]}" for name in ("tp", "pp", "vpp", "cp", "ep", "etp") if int(degrees[name]) > 1]
    shown += [f"shard{degrees['dp_shard']}"] + ([f"replicate{degrees['dp_replicate']}"] if int(degrees["dp_replicate"]) > 1 else [])
    recompute = [] if degrees["recompute"] == "none" else [f"recompute {degrees['recompute']}"]
    return " ".join([*shown, f"micro{degrees['micro_batch_size']}", *recompute])


def _candidate(scores: Scores, time: Floats, index: int, before: int | None) -> Candidate:
    slower = {} if before is None else {name: float(part[index] - part[before]) for name, part in scores.parts_s.items()}
    largest = max((abs(value) for value in slower.values()), default=0.0)
    told = {name: value for name, value in sorted(slower.items(), key=lambda each: -each[1]) if abs(value) > LEAST_SHARE * largest}
    return Candidate(degrees_of(scores.layouts, index), float(time[index]), float(scores.memory_bytes[index]) / 2**30, told)
