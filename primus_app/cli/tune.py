"""The verb tune: the fastest layouts of a model on given devices, each with the command that uses it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from primus_app.cli.arguments import Arguments
from primus_app.cli.layout_choice import CANDIDATES, SEARCHED, devices_of, fixed_degrees, is_legal, with_layout, without_effect
from primus_app.cli.program import program_name
from primus_app.cli.training import load_asked, memory_bytes
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.schema import Config
from primus_app.launch.devices import Devices, detect_devices
from primus_app.plan.console import PageConsole, print_table
from primus_app.plan.estimate.time import time_unknown
from primus_app.plan.notes import AUTO
from primus_app.plan.search.ranking import Candidate, layout_words, overrides_of
from primus_app.plan.search.search import Found, search

GIB = 2**30
SHOWN = 10


def run_tune(arguments: Arguments) -> ExitCode:
    """Print the best layouts: the fastest, or where the hardware has no figures for a time, the plainest.

    Raises:
        UserError: with what a search cannot heed, or where nothing legal fits.
    """
    devices = detect_devices()
    config = load_asked(arguments.request, devices)
    overrides = arguments.request.overrides
    nodes, devices_per_node = devices_of(config, devices)
    if wrong := _without_effect(config, overrides):
        raise UserError(wrong)
    if missing := [*time_unknown(config), *(() if config.hardware.memory_gb else ("hardware.memory_gb",))]:
        return _tune_plainly(config, arguments, missing, devices)
    found = search(config, nodes * devices_per_node, devices_per_node, fixed_degrees(config, overrides), CANDIDATES)
    best = [each for each in found.best if is_legal(with_layout(config, each.degrees, nodes, devices_per_node), devices_per_node)][:SHOWN]
    if not best:
        raise UserError(_nothing(config, found, nodes * devices_per_node))
    commands = _commands(overrides, [each.degrees for each in best])
    if "--json" in arguments.flags:
        print(json.dumps(_json(found, best, commands), indent=2))
    else:
        _print(config, found, best, commands, nodes * devices_per_node)
    return ExitCode.DONE


def _without_effect(config: Config, overrides: Sequence[str]) -> list[Problem]:
    """parallel=auto says what tune does."""
    keys = ("parallel.sequence_parallel", "parallel.schedule", "parallel.distributed_optimizer")
    found = [problem for key in keys for problem in without_effect(overrides, key, "tune chooses it")]
    return found + (without_effect(overrides, "parallel", "tune chooses it") if config.parallel.name != AUTO else [])


def _tune_plainly(config: Config, arguments: Arguments, missing: Sequence[str], devices: Devices) -> ExitCode:
    from primus_app.cli.tune_plain import plain_rows, print_rows, rows_json

    nodes, per_node = devices_of(config, devices)
    rows, number = plain_rows(config, arguments.request.overrides, (nodes, per_node), memory_bytes(devices), SHOWN)
    commands = _commands(arguments.request.overrides, [degrees for degrees, _ in rows])
    if "--json" in arguments.flags:
        print(rows_json(rows, number, commands, missing))
    else:
        print_rows(config, rows, number, commands, nodes * per_node)
    return ExitCode.DONE


def _commands(overrides: Sequence[str], layouts: Sequence[Mapping[str, int | str]]) -> list[str]:
    """The request with each of the layouts in place of what it says of one."""
    decided = {*(f"parallel.{name}" for name in SEARCHED), "training.micro_batch_size", "training.recompute"}
    kept = [text for text in overrides if text.partition("=")[0] not in decided]
    return [shlex.join((*program_name().split(), *kept, *overrides_of(degrees))) for degrees in layouts]


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
        table.add_row(str(number), layout_words(each.degrees), f"{each.time_s:.3g} s", speed, f"{each.memory_gib:.1f}", _slower(each))
    print_table(console, table)
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


def _slower(candidate: Candidate) -> str:
    """The parts of a step's time in which it differs most from the one before."""
    parts = [f"{name} {seconds:+.2g} s" for name, seconds in candidate.slower.items() if abs(seconds) > 1e-6 * candidate.time_s]
    return ", ".join(parts[:3])
