"""Memory and time of every legal layout of a configuration on given devices."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from primus_app.config.schema import Config
from primus_app.plan.estimate.memory import WITHHELD
from primus_app.plan.estimate.subject import workload_of
from primus_app.plan.estimate.time import PARTS
from primus_app.plan.memory.stage_memory import worst_memory
from primus_app.plan.search.ranking import Candidate, Scores, best, frontier
from primus_app.plan.search.space import Space, legal_layouts
from primus_app.plan.steptime.step_time import step_time
from primus_app.plan.workload import RECOMPUTE, Layout, Workload


@dataclass(frozen=True)
class Found:
    """What a search comes to.

    Attributes:
        layouts: how many legal ones there are.
        fitting: how many of them fit.
        best: the fastest that fit.
        frontier: from the least memory to the least time, those that do not fit too.
        memory_limit: bytes of a device.
    """

    layouts: int
    fitting: int
    best: list[Candidate]
    frontier: list[Candidate]
    memory_limit: float


def search(config: Config, world: int, devices_per_node: int, fixed: Mapping[str, int | str], count: int = 10) -> Found:
    """The best ``count`` layouts of hardware with memory and all figures for a time.

    Args:
        fixed: degrees that are not searched, by Layout's names, with micro_batch_size; recompute by its word.
    """
    workload, layouts = searched_layouts(config, world, devices_per_node, fixed)
    scores = score(workload, layouts, config)
    limit = (config.hardware.memory_gb or 0.0) * (1 - WITHHELD) * 2**30
    fitting = int(np.count_nonzero(scores.memory_bytes <= limit))
    return Found(len(layouts.tp), fitting, best(scores, limit, count), frontier(scores), limit)


def searched_layouts(config: Config, world: int, devices_per_node: int, fixed: Mapping[str, int | str]) -> tuple[Workload, Layout]:
    """What a search goes through: the legal layouts with what is ``fixed``, and the workload that they divide."""
    # Both schedules of the space are told apart by vpp.
    workload = replace(workload_of(config), schedule="interleaved")
    return workload, _with_fixed(legal_layouts(workload, _space(world, devices_per_node, fixed)), fixed)


def score(workload: Workload, layouts: Layout, config: Config) -> Scores:
    """Bytes and seconds of arrays of layouts."""
    number = len(layouts.tp)
    memory = worst_memory(workload, layouts)
    time = step_time(workload, layouts, config.hardware)
    parts = {name: np.broadcast_to(np.asarray(getattr(time, name), dtype=np.float64), (number,)) for name in PARTS}
    return Scores(layouts, np.broadcast_to(np.asarray(memory.total, dtype=np.float64), (number,)), parts)


def _space(world: int, devices_per_node: int, fixed: Mapping[str, int | str]) -> Space:
    space = Space(world, devices_per_node)
    if "micro_batch_size" in fixed:
        space = replace(space, micro_batch_sizes=(int(fixed["micro_batch_size"]),))
    return replace(space, recompute=(str(fixed["recompute"]),)) if "recompute" in fixed else space


def _with_fixed(layouts: Layout, fixed: Mapping[str, int | str]) -> Layout:
    keep = np.ones(len(layouts.tp), dtype=bool)
    for name, value in fixed.items():
        keep &= np.asarray(getattr(layouts, name)) == (RECOMPUTE.index(str(value)) if name == "recompute" else value)
    return Layout(**{field.name: np.asarray(getattr(layouts, field.name))[keep] for field in fields(Layout)})
