"""Every legal layout of a model on a number of devices, as arrays; an illegal one is never among them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from primus_app.config.schema import ModelConfig
from primus_app.plan.divisibility import shares
from primus_app.plan.neighbours import divisors
from primus_app.plan.stages import split_layers
from primus_app.plan.workload import RECOMPUTE, Layout, Workload

Column = NDArray[np.int64]
Table = dict[str, Column]

MOST_VIRTUAL = 16
"""Virtual stages on a rank; more cost more communication than they save of the bubble."""

TITAN_BLOCK = 128
"""Tokens that TorchTitan divides a sequence among cp ranks by."""


@dataclass(frozen=True)
class Space:
    """What a search goes through.

    Attributes:
        world: all devices.
        devices_per_node: tp stays within a node, where the links are.
        micro_batch_sizes: those tried, of which a layout has the ones that its batch allows.
        recompute: those tried, of RECOMPUTE.
    """

    world: int
    devices_per_node: int
    micro_batch_sizes: Sequence[int] = (1, 2, 4, 8)
    recompute: Sequence[str] = RECOMPUTE


def legal_layouts(work: Workload, space: Space) -> Layout:
    """All of them; arrays of length 0 where there is none. One with vpp above 1 runs the interleaved schedule, the others 1F1B."""
    model = work.model
    table = _cross({}, "tp", [tp for tp in divisors(space.devices_per_node) if _divides(model, "tp", tp)])
    table = _with_stages(table, model, space.world)
    table = _cross(table, "cp", divisors(space.world))
    table = _keep(table, space.world % (table["tp"] * table["pp"] * table["cp"]) == 0)
    table = _keep(table, _sequence_fits(work, table))
    table["dp"] = space.world // (table["tp"] * table["pp"] * table["cp"])
    table = _keep(table, work.global_batch_size % table["dp"] == 0)
    table = _with_shards(table, work)
    table = _with_experts(table, work)
    table = _with_micro_batches(table, work, space.micro_batch_sizes)
    table = _cross(table, "recompute", [RECOMPUTE.index(name) for name in space.recompute])
    one = np.ones_like(table["tp"])
    columns = table | {"sequence_parallel": one, "sharded_optimizer": (table["dp_shard"] > 1).astype(np.int64)}
    return Layout(**{field.name: columns[field.name] for field in fields(Layout)})


def _with_stages(table: Table, model: ModelConfig, world: int) -> Table:
    pairs = [(pp, vpp) for pp in divisors(world) for vpp in range(1, MOST_VIRTUAL + 1) if _splits(model, pp, vpp)]
    table = _cross(table, "pair", range(len(pairs)))
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    chosen = table.pop("pair")
    return table | {"pp": both[chosen, 0], "vpp": both[chosen, 1]}


def _splits(model: ModelConfig, pp: int, vpp: int) -> bool:
    is_legal = pp * vpp <= model.num_hidden_layers and (pp > 1 or vpp == 1)
    return is_legal and split_layers(model.num_hidden_layers, pp * vpp) is not None


def _sequence_fits(work: Workload, table: Table) -> NDArray[np.bool_]:
    """As in divisibility.py, and TorchTitan's blocks."""
    cp = table["cp"]
    unit = table["tp"] * np.where(cp > 1, 2 * cp, 1)
    fits: NDArray[np.bool_] = work.seq_len % unit == 0
    return fits & ((cp == 1) | (work.seq_len % (TITAN_BLOCK * cp) == 0)) if work.engine == "torchtitan" else fits


def _with_shards(table: Table, work: Workload) -> Table:
    """dp_shard over every divisor of dp: all of it (FSDP, distributed optimizer), a part (HSDP), nothing (DDP)."""
    table = _cross(table, "dp_shard", divisors(int(reduce(np.lcm, np.unique(table["dp"]), 1))))
    table = _keep(table, table["dp"] % table["dp_shard"] == 0)
    table["dp_replicate"] = table["dp"] // table["dp_shard"]
    return table


def _with_experts(table: Table, work: Workload) -> Table:
    """The rules of mesh.py and of each engine's support.py."""
    moe = work.model.moe
    if moe is None:
        one = np.ones_like(table["tp"])
        return table | {"ep": one, "etp": one}
    table = _cross(table, "ep", divisors(moe.num_experts))
    table = _cross(table, "whole", [0, 1])
    table["etp"] = np.where(table["whole"] == 1, 1, table["tp"])
    table = _keep(table, (table["whole"] == 1) | (table["tp"] > 1))
    tp, ep, etp = table["tp"], table["ep"], table["etp"]
    divides = moe.moe_intermediate_size % etp == 0
    ranks = table["dp"] * table["cp"] * np.where(etp == 1, tp, 1)
    legal = divides & (ranks % ep == 0)
    if work.engine == "torchtitan":
        legal &= (etp == np.where(ep == 1, tp, 1)) & (table["dp_shard"] * table["cp"] * tp % ep == 0)
    else:
        same = table["dp"] * table["cp"] * tp // (ep * etp)
        legal &= ~((tp > 1) & (etp == 1) & (ep == 1)) & ((table["dp_shard"] == 1) | (same % table["dp_replicate"] == 0))
    return _keep(table, legal)


def _with_micro_batches(table: Table, work: Workload, sizes: Sequence[int]) -> Table:
    """As plan.schedule_rhythm: the interleaved schedule wants a multiple of pp, TorchTitan's 1F1B one micro batch a stage at least."""
    table = _cross(table, "micro_batch_size", sizes)
    samples = work.global_batch_size // table["dp"]
    table["num_microbatches"] = number = samples // table["micro_batch_size"]
    fits = samples % table["micro_batch_size"] == 0
    fits &= (table["vpp"] == 1) | (number % table["pp"] == 0)
    if work.engine == "torchtitan":
        fits &= (table["pp"] == 1) | (number >= table["pp"])
    return _keep(table, fits)


def _divides(model: ModelConfig, degree: str, value: int) -> bool:
    return all(share.size % value == 0 for share in shares(model) if share.degree == degree)


def _cross(table: Table, name: str, values: Sequence[int]) -> Table:
    """Each row with each of the values."""
    column = np.asarray(list(values), dtype=np.int64)
    length = len(next(iter(table.values()))) if table else 1
    return {key: np.repeat(known, len(column)) for key, known in table.items()} | {name: np.tile(column, length)}


def _keep(table: Table, mask: NDArray[np.bool_]) -> Table:
    return {key: column[mask] for key, column in table.items()}
