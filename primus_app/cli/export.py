"""The verb export: a configuration as another program's command line."""

import sys

from primus_app.cli.arguments import Arguments
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.launch.devices import detect_devices

FORMATS = {"args": "megatron"}
"""Each format and the backend whose configuration it is of."""


def run_export(arguments: Arguments) -> ExitCode:
    """Print the arguments, and on the error output what to know about them.

    Raises:
        UserError: with all mistakes; nothing is printed then.
    """
    from primus_app.backends.base import load_backend
    from primus_app.backends.megatron.pretrain.export import as_text, notes
    from primus_app.backends.megatron.pretrain.row import Source
    from primus_app.backends.megatron.pretrain.support import check_arguments
    from primus_app.backends.megatron.pretrain.table import arguments as megatron_arguments
    from primus_app.cli.training import load, load_problems
    from primus_app.plan.plan import make_plan

    wrong_format = _format_problems(arguments.values.get("--to"))
    devices = detect_devices()
    config, _ = load(arguments.request, devices)
    if config.backend.name not in FORMATS.values():
        what = f"{config.backend.name} is told by a job file and not by arguments; --to args is of Megatron-LM"
        wrong_format.append(Problem("backend", what, ("backend=megatron",)))
    if wrong_format:
        raise UserError(wrong_format)
    plan = make_plan(config, local_devices=devices.count, local_hardware=devices.hardware)
    backend = load_backend(config.backend.name)
    if wrong := [
        *plan.problems,
        *load_problems(arguments.request, config),
        *backend.check(config, plan.mesh),
        *_said(check_arguments(config)),
    ]:
        raise UserError(list(dict.fromkeys(wrong)))
    cpu = config.hardware.vendor == "cpu"
    source = Source.of(config, plan, cpu=cpu, engine=not cpu, hosted=False)
    for note in notes(source):
        print(f"note: {note}", file=sys.stderr)
    print(as_text(megatron_arguments(source)), end="")
    return ExitCode.DONE


def _said(problems: list[Problem]) -> list[Problem]:
    """Here another runner is no way out."""
    return [Problem(each.where, each.what, tuple(fix for fix in each.fix if "backend.runner" not in fix)) for each in problems]


def _format_problems(wanted: str | None) -> list[Problem]:
    if wanted is None:
        return [Problem("--to", "is missing", ("--to args prints the arguments of Megatron-LM",))]
    if wanted not in FORMATS:
        near = did_you_mean(f"--to {name}" for name in nearest(wanted, FORMATS, cutoff=0.5))
        return [Problem("--to", f"{wanted!r} is not known", near or (f"one of {', '.join(FORMATS)}",))]
    return []
