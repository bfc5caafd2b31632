"""How well predicted step times rank published runs: Kendall's tau, within one source."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from published_errors import Error

Group = list[tuple[float, float]]
"""Published and predicted times of runs that are compared with each other."""

LEAST_TAU = 0.8
LIMITED = "layouts of one model"
"""The ranking that LEAST_TAU is held against: what differs between its runs is the layout and how many devices there are."""

COMPARED: dict[str, Callable[[Error], Hashable]] = {
    "all runs": lambda each: (),
    LIMITED: lambda each: each.model,
    "layouts of one job": lambda each: each.job,
}
"""Which runs of a source are compared with each other: all, those that agree in model, device, length and number format, or those that
agree in the number of devices and the batch too. Always by what a device takes for a token."""


def rankings(errors: list[Error]) -> dict[str, dict[str, tuple[int, float]]]:
    """By what is compared, then by source: number of runs that have another to be compared with, and tau of all pairs; without what no
    two runs can be compared by."""
    times = [each for each in errors if each.kind.startswith("step time")]
    found: dict[str, dict[str, tuple[int, float]]] = {}
    for name, key in COMPARED.items():
        sources: dict[str, dict[Hashable, Group]] = defaultdict(lambda: defaultdict(list))
        for each in times:
            sources[each.source][key(each)].append((each.device_s, each.device_s * (1 + each.error)))
        groups = {source: [group for group in by_key.values() if len(group) > 1] for source, by_key in sources.items()}
        found[name] = {source: (sum(map(len, some)), kendall_tau(some)) for source, some in groups.items() if some}
    return {name: by_source for name, by_source in found.items() if by_source}


def mean_tau(by_source: dict[str, tuple[int, float]]) -> float:
    """The mean over sources, each by its number of runs."""
    return sum(runs * tau for runs, tau in by_source.values()) / sum(runs for runs, _ in by_source.values())


def kendall_tau(groups: Iterable[Group]) -> float:
    """Tau b of all pairs within the groups (M. G. Kendall, Biometrika 33, 1945): pairs in the same order less those in the other, over the
    root of the pairs that are no ties in one column times those that are none in the other; 1 where all are ties."""
    agree, published, predicted = 0, 0, 0
    for group in groups:
        for number, (a, b) in enumerate(group):
            for c, d in group[:number]:
                agree += _sign(a - c) * _sign(b - d)
                published += a != c
                predicted += b != d
    return agree / math.sqrt(published * predicted) if published and predicted else 1.0


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
