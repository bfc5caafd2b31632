"""From a verb to what carries it out."""

import json
from collections.abc import Sequence
from dataclasses import replace

from primus_app.cli.arguments import Arguments
from primus_app.config.errors import ExitCode
from primus_app.launch.devices import detect_devices


def run_verb(arguments: Arguments) -> int:
    """Carry out the verb; the exit code."""
    if arguments.hydra.multirun and arguments.verb != "export":
        from primus_app.cli.sweep import run_sweep

        return int(run_sweep(arguments))
    if arguments.verb == "plan":
        return int(show_plan(arguments))
    if arguments.verb == "export":
        from primus_app.cli.export import run_export

        return int(run_export(arguments))
    from primus_app.cli.training import check_training, record_and_run

    return int(record_and_run(check_training(arguments.request, detect_devices())))


def run_file_verb(verb: str, argv: Sequence[str]) -> int:
    """Carry out a verb on a file or a folder; the exit code."""
    if verb == "convert":
        from primus_app.cli.convert import run_convert

        return int(run_convert(argv))
    if verb == "import-primus":
        from primus_app.cli.import_primus import import_primus

        return int(import_primus(argv))
    from primus_app.cli.import_titan import import_titan

    return int(import_titan(argv))


def show_plan(arguments: Arguments) -> ExitCode:
    """Print the plan; its problems make the exit code 2."""
    from primus_app.backends.base import load_backend
    from primus_app.backends.elsewhere import refusals
    from primus_app.cli.training import load, load_problems
    from primus_app.plan.notes import notes
    from primus_app.plan.plan import make_plan

    devices = detect_devices()
    config = load(arguments.request, devices)
    plan = make_plan(config, local_devices=devices.count, local_hardware=devices.hardware)
    plan = replace(plan, problems=(*plan.problems, *load_problems(arguments.request, config)))
    refused = [*refusals(config, plan.mesh), *load_backend(config.backend.name).check_machine(config)]
    if "--json" in arguments.flags:
        print(json.dumps({**plan.to_dict(), "refused_by_backend": [str(problem) for problem in refused]}, indent=2))
    else:
        from primus_app.plan.render import render_plan

        render_plan(plan)
        for problem in refused:
            print(f"note: backend={config.backend.name} does not train this: {problem}")
        for note in notes(config, plan.mesh):
            print(f"note: {note}")
    return ExitCode.BAD_REQUEST if plan.problems else ExitCode.DONE
