"""The layout in numbers: how many ranks there are and how they are divided among the kinds of parallelism."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from primus_app.config.errors import Problem
from primus_app.config.schema import ClusterConfig, HardwareConfig, ParallelConfig
from primus_app.plan.neighbours import count, divisors, nearest, offer

Allows = Callable[[str, int], bool]
"""Whether the model and the batch allow a degree (``tp``, ``pp``, ``cp`` or ``ep``) to have a value."""


@dataclass(frozen=True)
class Mesh:
    """A resolved layout: world = nodes * devices_per_node = dp * cp * tp * pp and dp = dp_replicate * dp_shard."""

    world: int
    nodes: int
    devices_per_node: int
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    etp: int
    dp_replicate: int
    dp_shard: int
    dp: int


@dataclass(frozen=True)
class _Site:
    """The machines as asked for, and the devices of a node where that says auto.

    Attributes:
        bounded: whether a node has no more than ``usual`` devices (a CPU may start any number of processes).
    """

    nodes: int | str
    devices: int | str
    usual: int
    bounded: bool


@dataclass(frozen=True)
class _Demand:
    """What a layout asks of the machines.

    Attributes:
        factors: fixed degrees by name, in the order in which they are shown.
        auto: the data parallel degrees left open.
        least: the fewest ranks that hold the fixed degrees and ep.
    """

    factors: dict[str, int]
    auto: tuple[str, ...]
    least: int

    @property
    def product(self) -> int:
        return math.prod(self.factors.values())

    @property
    def text(self) -> str:
        names = [*self.factors] if not self.auto else [name for name, n in self.factors.items() if not name.startswith("dp") or n > 1]
        return f"{' x '.join(f'{name} {self.factors[name]}' for name in names)} = {self.product}"

    def holds(self, world: int) -> bool:
        return world % self.product == 0 if self.auto else world == self.product


def resolve_mesh(
    parallel: ParallelConfig,
    cluster: ClusterConfig,
    hardware: HardwareConfig,
    local_devices: int,
    *,
    local_hardware: str | None = None,
    allows: Allows = lambda degree, value: True,
) -> tuple[Mesh | None, list[Problem]]:
    """Fill in every ``auto`` and check the layout's own rules.

    Args:
        local_devices: what cluster.devices_per_node=auto means on this machine: its accelerators, or 1 where it has only a CPU.
        local_hardware: name of the hardware found in this machine; any other ``hardware`` has its data sheet's devices per node.
            Without it, ``hardware`` is taken for this machine's when it is ``auto`` or a CPU.
        allows: narrows the neighbours that are offered to those that the model allows too.

    Returns:
        The mesh, or None when the world does not hold the degrees; and all problems. A mesh may come with problems of ep, etp, vpp.
    """
    problems = _degree_problems(parallel)
    if parallel.dp_replicate == parallel.dp_shard == "auto":
        return None, [*problems, _both_auto()]
    usual = usual_devices(hardware, local_devices, local_hardware)
    site = _Site(cluster.nodes, cluster.devices_per_node, usual, hardware.vendor in ("amd", "nvidia"))
    mesh = _mesh(parallel, site)
    if mesh is None:
        offers_nodes = cluster.name != "local" or _nodes_and_devices(_demand(parallel), site)[0] > 1
        return None, [*problems, _misfit(parallel, site, allows, offers_nodes)]
    return mesh, [*problems, *_expert_problems(mesh, parallel, site, allows)]


def usual_devices(hardware: HardwareConfig, local_devices: int, local_hardware: str | None = None) -> int:
    """Devices of a node where the request says auto: this machine's, or the data sheet's for hardware that is elsewhere."""
    is_local = hardware.name in ("auto", local_hardware) or (local_hardware is None and hardware.vendor == "cpu")
    return local_devices if is_local else hardware.devices_per_node or local_devices


def _demand(parallel: ParallelConfig) -> _Demand:
    degrees = {name: getattr(parallel, name) for name in ("tp", "pp", "cp", "dp_replicate", "dp_shard")}
    factors = {name: value for name, value in degrees.items() if value != "auto"}
    auto = tuple(name for name in degrees if name not in factors)
    product = math.prod(factors.values())
    spread = product // parallel.pp // (parallel.tp if parallel.etp == parallel.tp else 1)
    return _Demand(factors, auto, product * (parallel.ep // math.gcd(parallel.ep, spread)) if auto else product)


def _nodes_and_devices(demand: _Demand, site: _Site) -> tuple[int, int]:
    """Auto nodes are the fewest that hold the demand; auto devices shrink where nothing would use the rest."""
    nodes, devices, product = site.nodes, site.devices, demand.product
    if devices == "auto" and not demand.auto:
        counts = [n for n in divisors(product) if product // n <= site.usual and nodes in ("auto", n)]
        if counts:
            return counts[0], product // counts[0]
    devices = site.usual if isinstance(devices, str) else devices
    return (-(-demand.least // devices) if isinstance(nodes, str) else nodes), devices


def _mesh(parallel: ParallelConfig, site: _Site) -> Mesh | None:
    demand = _demand(parallel)
    nodes, devices = _nodes_and_devices(demand, site)
    world = nodes * devices
    if not demand.holds(world):
        return None
    left = world // demand.product
    replicate = left if isinstance(parallel.dp_replicate, str) else parallel.dp_replicate
    shard = left if isinstance(parallel.dp_shard, str) else parallel.dp_shard
    p = parallel
    return Mesh(world, nodes, devices, p.tp, p.pp, p.vpp, p.cp, p.ep, p.etp, replicate, shard, replicate * shard)


def _both_auto() -> Problem:
    fix = ("parallel.dp_replicate=1 shards over all that is left (FSDP)", "parallel.dp_shard=1 replicates over all that is left (DDP)")
    return Problem("parallel.dp_shard", "dp_replicate and dp_shard are both auto; one of them has to be a number", fix)


def _misfit(parallel: ParallelConfig, site: _Site, allows: Allows, offers_nodes: bool) -> Problem:
    demand = _demand(parallel)
    nodes, devices = _nodes_and_devices(demand, site)
    relation = "is not divisible by" if demand.auto else "is not"
    what = f"world {nodes * devices} = {count(nodes, 'node')} x {count(devices, 'device')} {relation} {demand.text}"
    fix = [line for name in ("tp", "pp", "cp") for line in _other_degree(parallel, site, nodes * devices, name, allows)]
    without = demand.product if demand.auto else demand.product // demand.factors["dp_shard"]
    if not demand.auto and nodes * devices % without == 0:
        fix += offer("parallel.dp_shard", [nodes * devices // without], "as auto would")
    most = max(site.usual, devices) if site.bounded else devices + demand.product
    fix += offer("cluster.devices_per_node", _other_sizes(parallel, site, "devices", devices, most))
    if offers_nodes:
        fix += offer("cluster.nodes", _other_sizes(parallel, site, "nodes", nodes, nodes + demand.product))
    return Problem("parallel", what, tuple(fix) or ("parallel=fsdp uses any number of devices",))


def _other_degree(parallel: ParallelConfig, site: _Site, world: int, name: str, allows: Allows) -> tuple[str, ...]:
    """The neighbours of a degree above 1 that the machines and the model allow."""
    value = getattr(parallel, name)

    def is_legal(degree: int) -> bool:
        return allows(name, degree) and _mesh(parallel.model_copy(update={name: degree}), site) is not None

    why = "and parallel.etp the same, or 1" if name == "tp" and parallel.etp == value else ""
    return offer(f"parallel.{name}", nearest(divisors(world), value, is_legal), why) if value > 1 else ()


def _other_sizes(parallel: ParallelConfig, site: _Site, name: str, value: int, most: int) -> tuple[int, ...]:
    """The neighbours of ``nodes`` or ``devices`` that hold the layout."""

    def is_legal(other: int) -> bool:
        return _mesh(parallel, replace(site, nodes=other) if name == "nodes" else replace(site, devices=other)) is not None

    return nearest(range(1, most + 1), value, is_legal)


def _degree_problems(parallel: ParallelConfig) -> list[Problem]:
    """The rules among the degrees that hold whatever the world is."""
    problems = []
    if parallel.etp not in (1, parallel.tp):
        what = f"etp {parallel.etp} is neither 1 nor tp {parallel.tp}"
        problems.append(Problem("parallel.etp", what, offer("parallel.etp", sorted({1, parallel.tp}))))
    if parallel.tp == 1 and not parallel.sequence_parallel:
        fix = ("leave it out, or choose a tensor parallel degree (parallel.tp)",)
        problems.append(Problem("parallel.sequence_parallel", "has no effect without tensor parallelism: tp is 1", fix))
    if parallel.pp == 1:
        if parallel.vpp > 1:
            fix = ("parallel.vpp=1, or two or more pipeline stages (parallel.pp)",)
            problems.append(Problem("parallel.vpp", f"vpp {parallel.vpp} divides the stages of a pipeline, and pp is 1", fix))
        if parallel.schedule != "1f1b":
            what = f"{parallel.schedule} has no effect without a pipeline: pp is 1"
            problems.append(Problem("parallel.schedule", what, ("parallel.schedule=1f1b, or two or more pipeline stages (parallel.pp)",)))
    elif parallel.vpp > 1 and parallel.schedule != "interleaved":
        what = f"vpp {parallel.vpp} needs the interleaved schedule, not {parallel.schedule}"
        problems.append(Problem("parallel.schedule", what, ("parallel.schedule=interleaved or parallel.vpp=1",)))
    elif parallel.vpp == 1 and parallel.schedule == "interleaved":
        fix = ("parallel.vpp=2 or parallel.schedule=1f1b",)
        problems.append(Problem("parallel.vpp", "the interleaved schedule needs vpp of 2 or more, and vpp is 1", fix))
    return problems


def _expert_problems(mesh: Mesh, parallel: ParallelConfig, site: _Site, allows: Allows) -> list[Problem]:
    if mesh.etp not in (1, mesh.tp) or _expert_ranks(mesh) % mesh.ep == 0:
        return []

    def is_legal(degree: int) -> bool:
        other = _mesh(parallel.model_copy(update={"ep": degree}), site)
        return other is not None and _expert_ranks(other) % degree == 0 and allows("ep", degree)

    factors = f"dp {mesh.dp} x cp {mesh.cp}" + (f" x tp {mesh.tp}" if mesh.etp == 1 else "")
    ranks = _expert_ranks(mesh)
    what = f"ep {mesh.ep} does not divide {factors} = {ranks}, the ranks that hold one stage's experts with etp {mesh.etp}"
    fix = offer("parallel.ep", nearest(range(1, max(ranks, mesh.ep) + 1), mesh.ep, is_legal))
    spread = _mesh(parallel.model_copy(update={"dp_shard": "auto"}), site) if parallel.dp_replicate != "auto" else None
    if spread is not None and spread.dp > mesh.dp and _expert_ranks(spread) % mesh.ep == 0:
        fix += (f"parallel.dp_shard=auto (dp {spread.dp} on {count(spread.world, 'device')})",)
    return [Problem("parallel.ep", what, fix)]


def _expert_ranks(mesh: Mesh) -> int:
    """Ranks among which ep divides the experts of a stage; those of tp too, where they do not share single experts."""
    return mesh.dp * mesh.cp * (mesh.tp if mesh.etp == 1 else 1)
