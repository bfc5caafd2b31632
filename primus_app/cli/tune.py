"""The verb tune: the fastest layouts of a model on given devices, each with the command that uses it."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from primus_app.backends.base import load_backend
from primus_app.cli.arguments import Arguments
from primus_app.cli.program import program_name
from primus_app.cli.training import load
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.overrides import override_value
from primus_app.config.schema import Config, ParallelConfig
from primus_app.launch.devices import detect_devices
from primus_app.plan.console import PageConsole
from primus_app.plan.estimate.time import time_unknown
from primus_app.plan.mesh import usual_devices
from primus_app.plan.plan import make_plan
from primus_app.plan.search.ranking import Candidate, overrides_of
from primus_app.plan.search.search import Found, search

SEARCHED = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard")
GIB = 2**30
CANDIDATES = 40
"""Asked of the search, of which the first ten that the engine trains are shown."""
SHOWN = 10


def run_tune(arguments: Arguments) -> ExitCode:
    """Print the best layouts.

    Raises:
        UserError: with what keeps the search from being made, or where nothing legal fits.
    """
    devices = detect_devices()
    config = load(arguments.request, devices)
    overrides = arguments.request.overrides
    per_node = config.cluster.devices_per_node
    devices_per_node = usual_devices(config.hardware, devices.count, devices.hardware) if per_node == "auto" else per_node
    nodes = 1 if config.cluster.nodes == "auto" else config.cluster.nodes
    if wrong := [*_without_effect(overrides), *_unpredictable(config)]:
        raise UserError(wrong)
    found = search(config, nodes * devices_per_node, devices_per_node, _fixed(config, overrides), CANDIDATES)
    best = [each for each in found.best if _is_legal(config, each, nodes, devices_per_node)][:SHOWN]
    if not best:
        raise UserError(_nothing(config, found, nodes * devices_per_node))
    kept = [text for text in overrides if text.partition("=")[0] not in {f"parallel.{name}" for name in SEARCHED}]
    kept = [text for text in kept if text.partition("=")[0] not in ("training.micro_batch_size", "training.recompute")]
    commands = [shlex.join((*program_name().split(), *kept, *overrides_of(each.degrees))) for each in best]
    if "--json" in arguments.flags:
        print(json.dumps(_json(found, best, commands), indent=2))
    else:
        _print(config, found, best, commands, nodes * devices_per_node)
    return ExitCode.DONE


def _without_effect(overrides: Sequence[str]) -> list[Problem]:
    keys = ("parallel", "parallel.sequence_parallel", "parallel.schedule", "parallel.distributed_optimizer")
    fix = ("leave it out; parallel.tp=8 and the like fix single degrees",)
    return [Problem(key, "has no effect: tune chooses it", fix) for key in keys if override_value(overrides, key) is not None]


def _unpredictable(config: Config) -> list[Problem]:
    missing = [*time_unknown(config), *(() if config.hardware.memory_gb else ("hardware.memory_gb",))]
    if not missing:
        return []
    what = (
        f"{config.hardware.name} has no {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}, without which nothing can be predicted"
    )
    return [Problem("hardware", what, ("hardware=mi300x, or another of conf/hardware/", "set the keys: see docs/estimates.md"))]


def _fixed(config: Config, overrides: Sequence[str]) -> dict[str, int | str]:
    """What was typed of the searched keys is kept."""
    found: dict[str, int | str] = {}
    for name in SEARCHED:
        value = getattr(config.parallel, name)
        if override_value(overrides, f"parallel.{name}") is not None and value != "auto":
            found[name] = value
    training = config.training
    if training.micro_batch_size != "auto":
        found["micro_batch_size"] = training.micro_batch_size
    if override_value(overrides, "training.recompute") is not None:
        found["recompute"] = training.recompute
    return found


def _is_legal(config: Config, candidate: Candidate, nodes: int, devices_per_node: int) -> bool:
    """By the checks that a run goes through."""
    degrees = candidate.degrees
    schedule = "interleaved" if int(degrees["vpp"]) > 1 else "1f1b"
    parallel = ParallelConfig.model_validate({**{name: degrees[name] for name in SEARCHED}, "schedule": schedule})
    training = config.training.model_copy(update={name: degrees[name] for name in ("micro_batch_size", "recompute")})
    cluster = config.cluster.model_copy(update={"nodes": nodes, "devices_per_node": devices_per_node})
    other = config.model_copy(update={"parallel": parallel, "training": training, "cluster": cluster})
    plan = make_plan(other, local_devices=devices_per_node)
    return not plan.problems and not load_backend(config.backend.name).check(other, plan.mesh)


def _nothing(config: Config, found: Found, world: int) -> Problem:
    if not found.layouts:
        what = f"no layout of {config.model.name} on {world:,} devices is legal with what is fixed"
        return Problem("tune", what, ("leave fixed degrees out", "choose another training.global_batch_size or cluster.nodes"))
    least = f", the leanest needs {found.frontier[0].memory_gib:,.1f} GiB of {found.memory_limit / GIB:,.1f}" if found.frontier else ""
    what = f"none of {found.layouts:,} legal layouts of {config.model.name} fits on {world:,} x {config.hardware.name}{least}"
    return Problem("tune", what, ("more nodes: cluster.nodes=…", "devices with more memory: hardware=…"))


def _json(found: Found, best: list[Candidate], commands: list[str]) -> dict[str, Any]:
    rows = [
        {**each.degrees, "step_s": each.time_s, "memory_gib": each.memory_gib, "slower_s": dict(each.slower), "command": command}
        for each, command in zip(best, commands, strict=True)
    ]
    frontier = [{**each.degrees, "step_s": each.time_s, "memory_gib": each.memory_gib} for each in found.frontier]
    return {"layouts": found.layouts, "fitting": found.fitting, "best": rows, "frontier": frontier, "device_gib": found.memory_limit / GIB}


def _print(config: Config, found: Found, best: list[Candidate], commands: list[str], world: int) -> None:
    console = PageConsole()
    tokens = config.training.global_batch_size * config.training.seq_len
    table = Table(
        title=f"{config.model.name} on {world:,} x {config.hardware.name}, {config.backend.name}: the best of {found.layouts:,} layouts, "
        f"{found.fitting:,} of which fit",
        title_justify="left",
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
        highlight=False,
    )
    table.add_column("", justify="right")
    table.add_column("layout", overflow="fold")
    for name in ("step", "tok/s/dev", "GiB"):
        table.add_column(name, justify="right")
    table.add_column("slower by", overflow="fold")
    for number, each in enumerate(best, 1):
        speed = f"{tokens / each.time_s / world:,.0f}"
        table.add_row(str(number), _layout(each), f"{each.time_s:.3g} s", speed, f"{each.memory_gib:.1f}", _slower(each))
    console.print(table)
    console.print()
    _print_frontier(found, console)
    console.print("The commands:")
    for number, command in enumerate(commands, 1):
        console.print(f"{number}. {command}", markup=False, highlight=False, soft_wrap=True)


def _print_frontier(found: Found, console: PageConsole) -> None:
    """What more memory would buy: some eight points from the leanest to the fastest."""
    step = max(1, -(-len(found.frontier) // 8))
    points = found.frontier[::step]
    text = ", ".join(f"{each.memory_gib:.0f} GiB {each.time_s:.3g} s" for each in points)
    console.print(f"Memory against time, of {found.memory_limit / GIB:.0f} GiB: {text}", highlight=False)
    console.print()


def _layout(candidate: Candidate) -> str:
    degrees = candidate.degrees
    shown = [f"{name}{degrees[name]}" for name in ("tp", "pp", "vpp", "cp", "ep", "etp") if int(degrees[name]) > 1]
    shown += [f"shard{degrees['dp_shard']}"] + ([f"replicate{degrees['dp_replicate']}"] if int(degrees["dp_replicate"]) > 1 else [])
    recompute = [] if degrees["recompute"] == "none" else [f"recompute {degrees['recompute']}"]
    return " ".join([*shown, f"micro{degrees['micro_batch_size']}", *recompute])


def _slower(candidate: Candidate) -> str:
    """The parts of a step's time in which it differs most from the one before."""
    parts = [f"{name} {seconds:+.2g} s" for name, seconds in candidate.slower.items() if abs(seconds) > 1e-6 * candidate.time_s]
    return ", ".join(parts[:3])
