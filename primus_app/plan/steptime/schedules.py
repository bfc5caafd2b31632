"""Pipeline schedules: what each rank does in which order, when it can, and how long it waits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from primus_app.plan.workload import Number

Schedule = Literal["1f1b", "interleaved", "gpipe", "zero_bubble"]
Kind = Literal["forward", "backward", "weight"]


@dataclass(frozen=True)
class Work:
    """One piece of work of a pipeline rank: a pass of one micro batch through one of the rank's ``chunk`` virtual stages."""

    kind: Kind
    chunk: int
    micro_batch: int


@dataclass(frozen=True)
class Event:
    """When a pipeline rank did a piece of work, in seconds from the beginning of the step."""

    rank: int
    work: Work
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Durations:
    """Seconds of one pass through one virtual stage, by its index from 0 to pp · vpp − 1, and from one stage to the next.

    Attributes:
        backward: the whole backward pass; under zero bubble that for the inputs only.
        weight: zero bubble: the backward pass for the weights.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    weight: tuple[float, ...]
    send: float = 0.0


def bubble_share(schedule: Schedule, pp: Number, vpp: Number, num_microbatches: Number) -> Number:
    """Idle over busy time of a pipeline with equal stages: ``(pp−1)/(m·vpp)`` (arXiv 2104.04473, section 2.2).

    ZB-H1 with equal forward, input and weight passes idles a third of that (arXiv 2401.10241, table 1).
    """
    share = (pp - 1) / (num_microbatches * vpp)
    return share / 3 if schedule == "zero_bubble" else share


def simulate(schedule: Schedule, pp: int, vpp: int, num_microbatches: int, durations: Durations) -> list[Event]:
    """Events of one step, in the order in which they begin on each rank; each rank starts the next piece as soon as its input is there."""
    plans = [list(order(schedule, rank, pp, vpp, num_microbatches)) for rank in range(pp)]
    done: dict[tuple[Kind, int, int], float] = {}
    clock, position, events = [0.0] * pp, [0] * pp, []
    waiting = True
    while waiting:
        waiting = False
        for rank in range(pp):
            while position[rank] < len(plans[rank]):
                work = plans[rank][position[rank]]
                ready = _ready(work, rank, pp, vpp, done, durations.send)
                if ready is None:
                    break
                stage = work.chunk * pp + rank
                start = max(clock[rank], ready)
                clock[rank] = start + getattr(durations, work.kind)[stage]
                done[work.kind, stage, work.micro_batch] = clock[rank]
                events.append(Event(rank, work, start, clock[rank]))
                position[rank] += 1
                waiting = True
    assert all(at == len(plan) for at, plan in zip(position, plans, strict=True))
    return events


def total_s(events: list[Event]) -> float:
    """Seconds until the last rank is done."""
    return max(event.end_s for event in events)


def order(schedule: Schedule, rank: int, pp: int, vpp: int, num_microbatches: int) -> Iterator[Work]:
    """The order of one rank's work."""
    if schedule == "gpipe":
        yield from (Work("forward", 0, index) for index in range(num_microbatches))
        yield from (Work("backward", 0, index) for index in range(num_microbatches))
    elif schedule == "zero_bubble":
        yield from _zero_bubble(rank, pp, num_microbatches)
    elif vpp > 1:
        yield from _interleaved(rank, pp, vpp, num_microbatches)
    else:
        passes = [(0, index) for index in range(num_microbatches)]
        yield from _alternating(passes, passes, pp - rank - 1)


def _alternating(forwards: list[tuple[int, int]], backwards: list[tuple[int, int]], ahead: int) -> Iterator[Work]:
    """``ahead`` forward passes, then one of each in turn, then the backward passes that are left; pairs are (chunk, micro batch)."""
    ahead = min(ahead, len(forwards))
    for chunk, index in forwards[:ahead]:
        yield Work("forward", chunk, index)
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        yield Work("forward", *forward)
        yield Work("backward", *backward)
    for chunk, index in backwards[len(backwards) - ahead :]:
        yield Work("backward", chunk, index)


def _interleaved(rank: int, pp: int, vpp: int, num_microbatches: int) -> Iterator[Work]:
    """Groups of pp micro batches go through one chunk after the other (arXiv 2104.04473, figure 4)."""
    groups = [range(first, min(first + pp, num_microbatches)) for first in range(0, num_microbatches, pp)]
    forwards = [(chunk, index) for group in groups for chunk in range(vpp) for index in group]
    backwards = [(chunk, index) for group in groups for chunk in reversed(range(vpp)) for index in group]
    ahead = len(forwards) if num_microbatches <= pp else 2 * (pp - rank - 1) + (vpp - 1) * pp
    return _alternating(forwards, backwards, ahead)


def _zero_bubble(rank: int, pp: int, num_microbatches: int) -> Iterator[Work]:
    """ZB-H1 (arXiv 2401.10241, section 2.3): 1F1B whose passes for the weights lag by the rank and fill its last waits."""
    passes = [(0, index) for index in range(num_microbatches)]
    weights = 0
    for work in _alternating(passes, passes, pp - rank - 1):
        yield work
        if work.kind == "backward" and work.micro_batch - rank >= weights:
            yield Work("weight", 0, weights)
            weights += 1
    yield from (Work("weight", 0, index) for index in range(weights, num_microbatches))


def _ready(work: Work, rank: int, pp: int, vpp: int, done: dict[tuple[Kind, int, int], float], send: float) -> float | None:
    """When the input of a piece of work is on its rank; None when what makes it has not been done yet."""
    stage, index = work.chunk * pp + rank, work.micro_batch
    if work.kind == "weight":
        return done.get(("backward", stage, index))
    if work.kind == "forward":
        if stage == 0:
            return 0.0
        before = done.get(("forward", stage - 1, index))
    elif stage == pp * vpp - 1:
        return done.get(("forward", stage, index))
    else:
        before = done.get(("backward", stage + 1, index))
    return None if before is None else before + (send if pp > 1 else 0.0)
