"""What each verb does with a configuration."""

import json
import sys

from primus_app.cli.arguments import Arguments
from primus_app.config.compose import Request
from primus_app.config.errors import ExitCode, UserError
from primus_app.config.load import load_config
from primus_app.config.overrides import override_value
from primus_app.config.schema import Config
from primus_app.launch.devices import Devices, detect_devices, known_hardware
from primus_app.plan.devices import Machine
from primus_app.plan.plan import Plan, make_plan


def run_verb(arguments: Arguments) -> int:
    """Carry out the verb; the exit code."""
    if arguments.hydra.multirun:
        from primus_app.cli.sweep import run_sweep

        return int(run_sweep(arguments))
    if arguments.verb == "plan":
        return int(show_plan(arguments))
    return int(train(arguments.request))


def train(request: Request, exp_name: str | None = None) -> ExitCode:
    """Check, record, train here, and tell how it ended. ``exp_name`` names the folder of a sweep's job."""
    from primus_app.backends.base import load_backend
    from primus_app.plan.devices import require_devices

    devices = detect_devices()
    config = _load(request, devices)
    if exp_name is not None:
        config = config.model_copy(update={"exp_name": exp_name})
    plan = make_plan(config, local_devices=devices.count, local_hardware=devices.hardware)
    problems = [*plan.problems, *load_backend(config.backend.name).check(config)]
    if not problems or plan.mesh is not None:
        require_devices(config, plan, _machine(devices), request.overrides, compose=lambda typed: _load(request.with_overrides(typed), devices))
    if problems:
        raise UserError(problems)
    return _record_and_run(config, plan, request)


def _record_and_run(config: Config, plan: Plan, request: Request) -> ExitCode:
    from primus_app.cli.summary import show_finished, show_start, show_summary
    from primus_app.launch.local import run_local
    from primus_app.run.open import open_run, record_start

    assert plan.mesh is not None
    assert plan.batch is not None
    opened = open_run(resolved(config, plan))
    try:
        if opened.kind == "finished":
            show_finished(opened.run)
            return ExitCode.DONE
        attempt = record_start(opened, request.overrides, plan.to_dict(), sys.argv)
        show_start(opened, attempt.number, plan)
        code = run_local(opened.run, attempt.number, plan.batch.steps, opened.lock)
        show_summary(opened.run, attempt.number, code)
        return code
    finally:
        opened.lock.release()


def resolved(config: Config, plan: Plan) -> Config:
    """The configuration with the numbers that ``auto`` came to on this machine."""
    assert plan.mesh is not None
    cluster = config.cluster.model_copy(update={"nodes": plan.mesh.nodes, "devices_per_node": plan.mesh.devices_per_node})
    return config.model_copy(update={"cluster": cluster})


def show_plan(arguments: Arguments) -> ExitCode:
    """Print the plan; its problems make the exit code 2."""
    devices = detect_devices()
    config = _load(arguments.request, devices)
    plan = make_plan(config, local_devices=devices.count, local_hardware=devices.hardware)
    if "--json" in arguments.flags:
        print(json.dumps(plan.to_dict(), indent=2))
    else:
        from primus_app.plan.render import render_plan

        render_plan(plan)
    return ExitCode.BAD_REQUEST if plan.problems else ExitCode.DONE


def _load(request: Request, devices: Devices) -> Config:
    return load_config(request, hardware=hardware_name(request, devices))


def hardware_name(request: Request, devices: Devices) -> str:
    """The option that hardware=auto stands for; a card without an entry is refused only when auto is asked for."""
    if override_value(request.overrides, "hardware") in (None, "auto"):
        return known_hardware(devices)
    return devices.hardware


def _machine(devices: Devices) -> Machine:
    is_cpu = devices.hardware == "cpu"
    return Machine(devices.count, is_cpu, int(devices.memory_gib * 2**30) if is_cpu else None, devices.hardware)
