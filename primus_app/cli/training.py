"""The verb train: check the request, record it, start it here, tell how it ended."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from primus_app.backends.base import load_backend
from primus_app.backends.elsewhere import refusals
from primus_app.backends.initial_weights import check_load, resolve_load
from primus_app.cli.lasting_output import lasting_output
from primus_app.cli.layout_choice import with_best_layout
from primus_app.cli.micro_batch import with_fitting_micro_batch
from primus_app.cli.plan_numbers import plan_numbers
from primus_app.cli.program import program_name
from primus_app.cli.recorded_layout import last_layout
from primus_app.cli.summary import show_finished, show_start, show_summary
from primus_app.config.compose import Request, hydra_ready
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.load import load_config
from primus_app.config.overrides import override_value
from primus_app.config.schema import Config
from primus_app.launch.devices import Devices, known_hardware
from primus_app.launch.local import run_local
from primus_app.launch.loopback import check_loopback
from primus_app.plan.devices import Machine, check_devices, on_this_machine
from primus_app.plan.estimate.gate import memory_note, memory_problems
from primus_app.plan.notes import AUTO, notes
from primus_app.plan.plan import Plan, make_plan
from primus_app.run.environment import describe_environment
from primus_app.run.open import open_run, record_start


@dataclass(frozen=True)
class Checked:
    """A request that nothing speaks against."""

    request: Request
    config: Config
    plan: Plan
    devices: Devices
    last: Config | None = None
    """Of the run's last start with parallel=auto, where it is asked for again."""


def check_training(request: Request, devices: Devices, exp_name: str | None = None) -> Checked:
    """Everything that can be known before a device is touched. ``exp_name`` is the folder of a sweep's job.

    Raises:
        UserError: code 2 with all mistakes in the request; code 3 when this machine lacks what it needs.
    """
    with hydra_ready(request.config_dir):
        return _check(request, devices, exp_name)


def _check(request: Request, devices: Devices, exp_name: str | None) -> Checked:
    config, last = load(request, devices, exp_name)
    plan = make_plan(on_this_machine(config), local_devices=devices.count, local_hardware=devices.hardware)
    backend = load_backend(config.backend.name)

    def compose(typed: Sequence[str]) -> Config:
        return load(request.with_overrides(typed), devices, exp_name)[0]

    def trains(other: Config, its_plan: Plan) -> bool:
        return not backend.check(other, its_plan.mesh)

    missing = check_devices(config, plan, machine(devices), request.overrides, compose=compose, trains=trains, program=program_name())
    refused = refusals(config, plan.mesh)
    if wrong := [*plan.problems, *load_problems(request, config), *refused]:
        raise UserError([*wrong, *missing])
    if missing:
        raise UserError(missing, ExitCode.UNFIT_MACHINE)
    if lacking := backend.check_machine(config):
        raise UserError(lacking, ExitCode.UNFIT_MACHINE)
    if unfit := check_loopback():
        raise UserError(unfit, ExitCode.UNFIT_MACHINE)
    if too_much := memory_problems(config, plan, local_devices=devices.count, local_bytes=memory_bytes(devices), legal=trains):
        raise UserError(too_much)
    return Checked(request, config, plan, devices, last)


def record_and_run(checked: Checked, exp_name: str | None = None) -> ExitCode:
    """Open the run directory, write the snapshot, train. ``exp_name`` is the folder of a sweep's job."""
    with lasting_output():
        return _record_and_run(checked, exp_name)


def _record_and_run(checked: Checked, exp_name: str | None) -> ExitCode:
    config, plan, request = checked.config, checked.plan, checked.request
    assert plan.mesh is not None
    assert plan.batch is not None
    if exp_name is not None:
        config = config.model_copy(update={"exp_name": exp_name})
    opened = open_run(resolve_load(_resolved(config, plan)))
    try:
        if opened.kind == "finished":
            show_finished(opened.run)
            return ExitCode.DONE
        environment = describe_environment(devices=[asdict(checked.devices)], command=sys.argv)
        numbers = plan_numbers(config, plan, memory_bytes(checked.devices))
        attempt = record_start(opened, request.overrides, numbers, sys.argv, environment)
        if checked.devices.unused:
            print(f"note: this trains on the CPU: {checked.devices.unused}", file=sys.stderr)
        for note in (*notes(config, plan, checked.last), *memory_note(config, plan.mesh, plan.batch, memory_bytes(checked.devices))):
            print(f"note: {note}", file=sys.stderr)
        show_start(opened, attempt.number, plan)
        code = run_local(opened.run, attempt.number, plan.batch.steps, opened.lock)
        if code in (ExitCode.BAD_REQUEST, ExitCode.UNFIT_MACHINE):
            # The agent has said what is wrong with the data; a corrected command may have the name.
            opened.discard() if opened.kind == "new" else opened.take_back()
            return code
        show_summary(opened.run, attempt.number, code)
        return code
    finally:
        opened.abandon()


def load_problems(request: Request, config: Config) -> list[Problem]:
    """What speaks against checkpoint.load, and what was typed that it leaves without effect."""
    problems = check_load(config)
    if config.checkpoint.load is not None and override_value(request.overrides, "model.init_std") is not None:
        what = "has no effect with checkpoint.load, whose weights take the place of the first ones"
        problems.append(Problem("model.init_std", what, ("leave it out",)))
    return problems


def load(request: Request, devices: Devices, exp_name: str | None = None) -> tuple[Config, Config | None]:
    """The request's configuration on this machine, with a layout in place of parallel=auto, and a micro batch that fits.

    The second is that of the run's last start, where both have parallel=auto. ``exp_name`` is the folder of a sweep's job.

    Raises:
        UserError: with all mistakes; where no layout is legal and fits; or as ``load_asked``.
    """
    config, local = load_asked(request, devices), memory_bytes(devices)
    if config.parallel.name == AUTO:
        last = last_layout(config if exp_name is None else config.model_copy(update={"exp_name": exp_name}))
        return with_best_layout(config, request.overrides, devices, local, last), last
    plan = make_plan(on_this_machine(config), local_devices=devices.count, local_hardware=devices.hardware)
    return with_fitting_micro_batch(config, plan, devices.count, devices.hardware, local), None


def load_asked(request: Request, devices: Devices) -> Config:
    """The request's configuration on this machine, as it was asked for.

    Raises:
        UserError: with all mistakes; or when the hardware is left to what is found, and that has no entry in conf/hardware/.
    """
    config = load_config(request, hardware=devices.option)
    if config.hardware.name == "auto":
        known_hardware(devices)
    return config


def machine(devices: Devices) -> Machine:
    """What was found, in the words of the plan."""
    is_cpu = devices.hardware == "cpu"
    known = devices.hardware if devices.unknown is None else None
    return Machine(devices.count, is_cpu, memory_bytes(devices), known)


def memory_bytes(devices: Devices) -> int | None:
    """Of this machine where it trains on its CPU; None where it has accelerators, whose data sheets say theirs."""
    return int(devices.memory_gib * 2**30) if devices.hardware == "cpu" else None


def _resolved(config: Config, plan: Plan) -> Config:
    """The configuration with the numbers that ``auto`` came to."""
    assert plan.mesh is not None
    cluster = config.cluster.model_copy(update={"nodes": plan.mesh.nodes, "devices_per_node": plan.mesh.devices_per_node})
    return config.model_copy(update={"cluster": cluster})
