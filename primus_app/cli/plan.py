"""The verb plan: everything that can be said about a request before it starts, as tables, JSON or a page."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

from primus_app.backends.base import load_backend
from primus_app.backends.elsewhere import refusals
from primus_app.cli.arguments import Arguments
from primus_app.cli.plan_numbers import memory_of, plan_numbers, time_of
from primus_app.cli.program import program_name
from primus_app.cli.training import load, load_problems, memory_bytes
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.schema import Config
from primus_app.launch.devices import Devices, detect_devices
from primus_app.plan.estimate.gate import memory_problems
from primus_app.plan.estimate.memory import MemoryEstimate
from primus_app.plan.notes import notes
from primus_app.plan.plan import Plan, make_plan


def show_plan(arguments: Arguments) -> ExitCode:
    """Print the plan; its problems make the exit code 2.

    Raises:
        UserError: for a request that does not compose, or a page that cannot be written.
    """
    devices = detect_devices()
    config, last = load(arguments.request, devices)
    plan = make_plan(config, local_devices=devices.count, local_hardware=devices.hardware)
    plan = replace(plan, problems=(*plan.problems, *load_problems(arguments.request, config)))
    backend = load_backend(config.backend.name)
    refused = [*refusals(config, plan.mesh), *backend.check_machine(config)]
    memory = memory_of(config, plan, memory_bytes(devices))
    plan = replace(plan, problems=(*plan.problems, *_too_much(config, plan, devices)))
    if "--json" in arguments.flags:
        print(json.dumps(plan_numbers(config, plan, memory_bytes(devices), refused), indent=2))
    else:
        _print(config, plan, memory, refused, last)
    if (page := arguments.values.get("--html")) is not None:
        _write_page(Path(page).expanduser(), arguments, config, plan, memory, refused, last)
    return ExitCode.BAD_REQUEST if plan.problems else ExitCode.DONE


def _too_much(config: Config, plan: Plan, devices: Devices) -> list[Problem]:
    if plan.problems:
        return []
    backend = load_backend(config.backend.name)

    def legal(other: Config, its: Plan) -> bool:
        return not backend.check(other, its.mesh)

    return memory_problems(config, plan, local_devices=devices.count, local_bytes=memory_bytes(devices), legal=legal)


def _print(config: Config, plan: Plan, memory: MemoryEstimate | None, refused: list[Problem], last: Config | None) -> None:
    from primus_app.plan.console import PageConsole
    from primus_app.plan.estimate.render import render_memory
    from primus_app.plan.estimate.render_time import render_time
    from primus_app.plan.estimate.time import time_unknown
    from primus_app.plan.render import render_plan, render_problems

    console = PageConsole()
    render_plan(replace(plan, problems=()), console)
    if memory is not None:
        render_memory(config, memory, console)
    if (time := time_of(config, plan)) is not None and plan.mesh is not None and plan.batch is not None:
        render_time(config, plan.mesh, plan.batch, time, console)
    elif config.hardware.vendor != "cpu" and (missing := time_unknown(config)):
        print(f"note: no time is predicted, as {config.hardware.name} has no {', '.join(missing)}\n")
    render_problems(plan.problems, console)
    for problem in refused:
        print(f"note: backend={config.backend.name} does not train this: {problem}")
    for note in notes(config, plan, last):
        print(f"note: {note}")


def _write_page(
    path: Path, arguments: Arguments, config: Config, plan: Plan, memory: MemoryEstimate | None, refused: list[Problem], last: Config | None
) -> None:
    from primus_app.plan.estimate.contents import contents
    from primus_app.plan.page.page import render_page

    command = shlex.join((*program_name().split(), "plan", *arguments.request.overrides))
    remarks = [*map(str, plan.problems), *(f"backend={config.backend.name} does not train this: {problem}" for problem in refused)]
    text = render_page(contents(config, plan, memory, time_of(config, plan), command, [*remarks, *notes(config, plan, last)]))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            Problem("--html", f"{path} cannot be written: {error.strerror}", ("give a file in a folder that is there",))
        ) from None
    print(f"page            {path}")
