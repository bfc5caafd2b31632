"""The verb import-primus: an experiment of AMD's Primus as one of our commands, with an account of every key."""

from collections.abc import Sequence

from primus_app.backends.amd_primus import convert, read_experiment
from primus_app.backends.elsewhere import refusals as engine_refusals
from primus_app.cli.imported import Importer, import_arguments, import_json, plain_problems, show_import
from primus_app.config.compose import Request, hydra_ready
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.load import load_config
from primus_app.plan.data_files import check_files
from primus_app.plan.plan import make_plan

PRIMUS = Importer("import-primus", "FILE.yaml", "Primus' default")
NODE = 8
"""Devices of a node, where the user does not say on how many it runs."""


def import_primus(argv: Sequence[str]) -> ExitCode:
    """Print the command and the table.

    Raises:
        UserError: for a file that cannot be read or is wrong; after the table, for what this program refuses of the command.
    """
    arguments = import_arguments(PRIMUS, argv)
    converted = convert(read_experiment(arguments.file), arguments.devices)
    if converted.problems and not converted.rows:
        raise UserError(converted.problems)
    refused = [] if converted.problems else refusals(converted.overrides)
    if arguments.json:
        print(import_json(converted, refused=plain_problems(refused)))
    else:
        show_import(PRIMUS, arguments.file, converted, refused)
    if problems := [*converted.problems, *refused]:
        raise UserError(problems)
    return ExitCode.DONE


def refusals(overrides: Sequence[str]) -> list[Problem]:
    """What the program would say against the command on any machine: files and devices are looked for where it starts."""
    try:
        with hydra_ready(None):
            config = load_config(Request(tuple(overrides)), hardware="cpu")
    except UserError as error:
        return list(error.problems)
    plan = make_plan(config, local_devices=NODE)
    files = check_files(config.data)
    wrong = [problem for problem in plan.problems if problem not in files]
    return [*wrong, *engine_refusals(config, plan.mesh)]
