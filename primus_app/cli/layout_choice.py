"""What a search for a layout starts from and ends in: the devices, what is fixed, and the configuration with what was found."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from primus_app.backends.base import load_backend
from primus_app.cli.recorded_layout import kept_degrees
from primus_app.config.errors import Problem, UserError
from primus_app.config.overrides import override_value
from primus_app.config.schema import Config, ParallelConfig
from primus_app.launch.devices import Devices
from primus_app.plan.estimate.memory import WITHHELD, MemoryEstimate, estimate_memory
from primus_app.plan.mesh import usual_devices
from primus_app.plan.plan import make_plan

SEARCHED = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard")
CANDIDATES = 40
"""Asked of a search, of which those count that the engine trains."""
MOST_TRIED = 400
"""Of those without a time, the plainest first."""

GIB = 2**30
ADVICE = ("leave fixed degrees out", "more nodes: cluster.nodes=…", "devices with more memory: hardware=…", "a smaller model or batch")


def devices_of(config: Config, devices: Devices) -> tuple[int, int]:
    """Nodes, and devices on each."""
    given = config.cluster.devices_per_node
    per_node = usual_devices(config.hardware, devices.count, devices.hardware) if given == "auto" else given
    return (1 if config.cluster.nodes == "auto" else config.cluster.nodes), per_node


def fixed_degrees(config: Config, overrides: Sequence[str]) -> dict[str, int | str]:
    """What was given of the searched keys is kept: typed ones, and those that a file has changed from their defaults."""
    found: dict[str, int | str] = {}
    fields = ParallelConfig.model_fields
    for name in SEARCHED:
        value = getattr(config.parallel, name)
        is_given = override_value(overrides, f"parallel.{name}") is not None
        is_changed = config.parallel.name == "auto" and value != fields[name].default
        if value != "auto" and (is_given or is_changed):
            found[name] = value
    training = config.training
    if training.micro_batch_size != "auto":
        found["micro_batch_size"] = training.micro_batch_size
    if override_value(overrides, "training.recompute") is not None or training.recompute != "none":
        found["recompute"] = training.recompute
    return found


def with_layout(config: Config, degrees: Mapping[str, int | str], nodes: int, devices_per_node: int) -> Config:
    """``config`` with all that a search decides."""
    schedule = "interleaved" if int(degrees["vpp"]) > 1 else "1f1b"
    parallel = config.parallel.model_copy(update={**{name: degrees[name] for name in SEARCHED}, "schedule": schedule})
    training = config.training.model_copy(update={name: degrees[name] for name in ("micro_batch_size", "recompute")})
    cluster = config.cluster.model_copy(update={"nodes": nodes, "devices_per_node": devices_per_node})
    return config.model_copy(update={"parallel": parallel, "training": training, "cluster": cluster})


def is_legal(config: Config, devices_per_node: int) -> bool:
    """By the checks that a run goes through."""
    plan = make_plan(config, local_devices=devices_per_node)
    return not plan.problems and not load_backend(config.backend.name).check(config, plan.mesh)


def with_best_layout(config: Config, overrides: Sequence[str], devices: Devices, local_bytes: int | None, last: Config | None) -> Config:
    """``config`` of parallel=auto with the layout that is chosen for it; unchanged where no layout at all would mend its mistakes.

    A run that goes on keeps what it had. Otherwise it is the fastest of those that fit, where the hardware has the figures for a time, and
    else the plainest.
    Args:
        local_bytes: memory of this machine, whose processes share it, where it trains on its CPU.
        last: of the run's last start with parallel=auto.
    Raises:
        UserError: for what parallel=auto leaves without effect, or where nothing legal fits.
    """
    if wrong := without_effect(overrides, "parallel.schedule", "parallel=auto chooses it"):
        raise UserError(wrong)
    nodes, per_node = devices_of(config, devices)
    fixed = fixed_degrees(config, overrides)
    kept = kept_degrees(last, config, (nodes, per_node), fixed) if last is not None else None
    found, reason = _candidates(config, nodes * per_node, per_node, fixed, local_bytes)
    for degrees in chain([kept] if kept is not None else [], found):
        chosen = with_layout(config, degrees, nodes, per_node)
        if is_legal(chosen, per_node) and fitting_memory(chosen, per_node, local_bytes) is not None:
            return chosen
    if make_plan(config, local_devices=per_node).problems:
        return config
    raise UserError(Problem("parallel=auto", reason, ADVICE))


def without_effect(overrides: Sequence[str], key: str, why: str) -> list[Problem]:
    """A typed key that a search decides by itself."""
    fix = ("leave it out; parallel.tp=8 and the like fix single degrees",)
    return [Problem(key, f"has no effect: {why}", fix)] if override_value(overrides, key) is not None else []


def _candidates(
    config: Config, world: int, per_node: int, fixed: Mapping[str, int | str], local_bytes: int | None
) -> tuple[Iterator[Mapping[str, int | str]], str]:
    from primus_app.plan.estimate.time import time_unknown
    from primus_app.plan.search.search import search

    what = f"legal layouts of {config.model.name} on {world:,} x {config.hardware.name}"
    if not time_unknown(config) and config.hardware.memory_gb:
        found = search(config, world, per_node, fixed, CANDIDATES)
        least = f", the leanest needs {found.frontier[0].memory_gib:,.1f} GiB of {found.memory_limit / GIB:,.1f}" if found.frontier else ""
        return (each.degrees for each in found.best), f"none of {found.layouts:,} {what} fits{least}"
    plain, number = plain_layouts(config, world, per_node, fixed, local_bytes)
    return iter(plain), f"none of {number:,} {what} fits"


def plain_layouts(
    config: Config, world: int, per_node: int, fixed: Mapping[str, int | str], local_bytes: int | None
) -> tuple[list[Mapping[str, int | str]], int]:
    """The plainest of those whose memory is predicted to be there, before the checks of a run; and how many there are in all."""
    from primus_app.plan.search.plainest import plainest

    return plainest(config, world, per_node, fixed, _most_bytes(config, world, local_bytes), MOST_TRIED)


def _most_bytes(config: Config, world: int, local_bytes: int | None) -> float | None:
    """Of a device; on a CPU of one process, where all have the same. None: any."""
    sold = config.hardware.memory_gb
    if config.plan.allow_oom:
        return None
    if config.hardware.vendor == "cpu":
        shared = local_bytes if sold is None else sold * GIB
        return None if shared is None else shared / world
    return local_bytes if sold is None else sold * (1 - WITHHELD) * GIB


def fitting_memory(config: Config, devices_per_node: int, local_bytes: int | None) -> MemoryEstimate | None:
    """Of a legal layout; None where it does not fit and plan.allow_oom is not set."""
    plan = make_plan(config, local_devices=devices_per_node)
    if plan.mesh is None or plan.batch is None:
        return None
    memory = estimate_memory(config, plan.mesh, plan.batch, local_bytes)
    return None if memory.verdict == "does not fit" and not config.plan.allow_oom else memory
