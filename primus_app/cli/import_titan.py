"""The verb import-titan: TorchTitan's TOML job file as one of our commands, with an account of every key."""

from collections.abc import Sequence

from primus_app.backends.torchtitan.job_file import convert, read_job
from primus_app.cli.imported import Importer, import_arguments, import_json, show_import
from primus_app.config.errors import ExitCode, UserError

TITAN = Importer("import-titan", "FILE.toml", "TorchTitan's default")


def import_titan(argv: Sequence[str]) -> ExitCode:
    """Print the command and the table.

    Raises:
        UserError: for a file that cannot be read or is wrong; after the table, for what keeps the command from being complete.
    """
    arguments = import_arguments(TITAN, argv)
    converted = convert(read_job(arguments.file), arguments.devices)
    if arguments.json:
        print(import_json(converted))
    else:
        show_import(TITAN, arguments.file, converted)
    if converted.problems:
        raise UserError(converted.problems)
    return ExitCode.DONE
