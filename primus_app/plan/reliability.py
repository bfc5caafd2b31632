"""What failures cost a run: the effective training time, and the checkpoint interval that makes most of it."""

from dataclasses import dataclass
from math import inf, sqrt

DAY_S = 86400.0


@dataclass(frozen=True)
class Reliability:
    """Expectations over a run.

    Attributes:
        failures_per_day: of all nodes together.
        failures: until the last step, None where the length in time is not known.
        effective: share of the time on the machines in which the run gets ahead (effective training time ratio), 0 to 1.
        interval_s: time between two checkpoints, as asked for; infinite where none are made.
        best_interval_s: the time between two checkpoints that makes ``effective`` largest.
        best_effective: that largest value.
    """

    failures_per_day: float
    failures: float | None
    effective: float
    interval_s: float
    best_interval_s: float
    best_effective: float


def effective_ratio(failures_per_day: float, restart_s: float, interval_s: float, write_s: float) -> float:
    """``(1 - N·r_f·(u0 + Δt/2)) / (1 + w/Δt)``, at least 0 (Kokolis et al., arXiv 2410.21680, section on ETTR).

    N·r_f are the failures in a day, u0 the restart, Δt the interval and w the write of a checkpoint that training waits for; a failure
    loses half an interval on average. Where nothing is saved, a failure loses everything: 0, unless nothing fails.
    """
    if interval_s == inf:
        return 0.0 if failures_per_day else 1.0
    lost = failures_per_day * (restart_s + interval_s / 2) / DAY_S
    return max(0.0, 1.0 - lost) / (1.0 + write_s / interval_s)


def best_interval(failures_per_day: float, restart_s: float, write_s: float) -> float:
    """The Δt in seconds where the derivative of :func:`effective_ratio` is zero; infinite where nothing fails.

    With R = N·r_f and a = 1 - R·u0, d/dΔt of (a - R·Δt/2)·Δt/(Δt + w) is zero at Δt = -w + sqrt(w² + 2·a·w/R), which for rare failures is
    Young's sqrt(2·w/R) (CACM 17(9), 1974).
    """
    if failures_per_day == 0:
        return inf
    rate = failures_per_day / DAY_S
    left = max(0.0, 1.0 - rate * restart_s)
    return -write_s + sqrt(write_s**2 + 2 * left * write_s / rate)


def expect(
    nodes: int, failures_per_node_day: float, restart_s: float, interval_s: float, write_s: float, duration_s: float | None
) -> Reliability:
    """``duration_s`` is the run's without failures; the failures are those of the time that it takes with them."""
    per_day = nodes * failures_per_node_day
    effective = effective_ratio(per_day, restart_s, interval_s, write_s)
    best = best_interval(per_day, restart_s, write_s)
    failures = per_day * duration_s / DAY_S / effective if duration_s is not None and effective > 0 else None
    return Reliability(per_day, failures, effective, interval_s, best, effective_ratio(per_day, restart_s, best, write_s) if best else 0.0)
