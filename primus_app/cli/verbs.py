"""From a verb to what carries it out."""

from collections.abc import Sequence

from primus_app.cli.arguments import Arguments
from primus_app.launch.devices import detect_devices


def run_verb(arguments: Arguments) -> int:
    """Carry out the verb; the exit code."""
    if arguments.hydra.multirun and arguments.verb != "export":
        from primus_app.cli.sweep import run_sweep

        return int(run_sweep(arguments))
    if arguments.verb == "plan":
        from primus_app.cli.plan import show_plan

        return int(show_plan(arguments))
    if arguments.verb == "tune":
        from primus_app.cli.tune import run_tune

        return int(run_tune(arguments))
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
    if verb == "tune-hardware":
        from primus_app.cli.tune_hardware import run_tune_hardware

        return int(run_tune_hardware(argv))
    if verb == "import-primus":
        from primus_app.cli.import_primus import import_primus

        return int(import_primus(argv))
    from primus_app.cli.import_titan import import_titan

    return int(import_titan(argv))
