"""The layouts to prefer where no time can be predicted: those that fit with the fewest divisions of the model."""

from collections.abc import Mapping

import numpy as np

from primus_app.config.schema import Config
from primus_app.plan.memory.stage_memory import worst_memory
from primus_app.plan.search.ranking import degrees_of
from primus_app.plan.search.search import searched_layouts

Degrees = Mapping[str, int | str]


def plainest(
    config: Config, world: int, devices_per_node: int, fixed: Mapping[str, int | str], limit: float | None, count: int
) -> tuple[list[Degrees], int]:
    """The ``count`` best that need at most ``limit`` bytes of a device (None: any), and how many legal ones there are.

    Best is what divides the model least (tp·pp·vpp·cp·ep), then what computes nothing twice, then the largest micro batch; of equal
    ones first what cuts no pipeline and no sequence, and shards over all replicas.
    """
    workload, layouts = searched_layouts(config, world, devices_per_node, fixed)
    number = len(layouts.tp)
    if not number:
        return [], 0
    memory = np.broadcast_to(np.asarray(worst_memory(workload, layouts).total, dtype=np.float64), (number,))
    keep = np.flatnonzero(memory <= limit) if limit is not None else np.arange(number)
    tp, pp, vpp, cp, ep = (np.asarray(getattr(layouts, name))[keep] for name in ("tp", "pp", "vpp", "cp", "ep"))
    recompute, micro, replicas = (np.asarray(getattr(layouts, name))[keep] for name in ("recompute", "micro_batch_size", "dp_replicate"))
    # numpy sorts by the last key first.
    order = np.lexsort((replicas, ep, tp, cp, pp, -micro, recompute, tp * pp * vpp * cp * ep))
    return [degrees_of(layouts, index) for index in keep[order][:count]], number
