"""The verb import-titan: TorchTitan's TOML job file as one of our commands, with an account of every key."""

import json
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import NoReturn

from rich import box
from rich.table import Table

from primus_app.backends.torchtitan.job_file import Converted, Fate, Row, convert, read_job
from primus_app.cli.arguments import OWN_FLAGS
from primus_app.cli.program import program_name
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.config.validate import shown
from primus_app.plan.console import PageConsole
from primus_app.plan.neighbours import count

VERB = "import-titan"
USAGE = "import-titan FILE.toml [--devices N] [--json]"
MOST_SHOWN = 3
"""Overrides of one key that its line shows."""

WIDTH = 100
"""Columns of the command."""


def import_titan(argv: Sequence[str]) -> ExitCode:
    """Print the command and the table.

    Raises:
        UserError: for a file that cannot be read or is wrong; after the table, for what keeps the command from being complete.
    """
    arguments = _arguments(argv)
    converted = convert(read_job(arguments.file), arguments.devices)
    if arguments.json:
        print(json.dumps(_plain(converted), indent=2))
    else:
        _show(arguments.file, converted)
    if converted.problems:
        raise UserError(converted.problems)
    return ExitCode.DONE


def _arguments(argv: Sequence[str]) -> Namespace:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE.toml")
    parser.add_argument("--devices", type=int)
    parser.add_argument("--json", action="store_true")

    def refuse(message: str) -> NoReturn:
        unknown = next((word for word in argv if word.startswith("-") and word.partition("=")[0] not in OWN_FLAGS[VERB]), "")
        if unknown:
            fix = did_you_mean(nearest(unknown.partition("=")[0], OWN_FLAGS[VERB])) or (f"usage: {USAGE}",)
            raise UserError(Problem(unknown, "no such flag of import-titan", fix))
        raise UserError(Problem("import-titan", message.removeprefix("argument "), (f"usage: {USAGE}",)))

    parser.error = refuse  # type: ignore[method-assign]
    arguments = parser.parse_args(list(argv))
    if arguments.devices is not None and arguments.devices < 1:
        raise UserError(Problem("--devices", f"{arguments.devices} is not allowed; it takes a whole number above 0"))
    return arguments


def command_text(converted: Converted) -> str:
    """The command on lines of up to WIDTH columns, to be copied into a shell."""
    words = [*program_name().split(), *(shlex.quote(text) for text in converted.overrides)]
    lines, line = [], words[0]
    for word in words[1:]:
        if len(line) + len(word) > WIDTH - 3:
            lines.append(f"{line} \\")
            line = "   "
        line += f" {word}"
    return "\n".join([*lines, line])


def _show(file: str, converted: Converted) -> None:
    if not converted.problems:
        print(f"{command_text(converted)}\n\nlook first: {program_name()} plan and the same settings\n")
    _table(converted.rows)
    fates = {fate: sum(row.fate == fate and not row.is_default for row in converted.rows) for fate in Fate}
    told = ", ".join(f"{number} {fate}" for fate, number in fates.items() if number)
    print(f"\n{count(sum(fates.values()), 'key')} of {file}: {told}")


def _table(rows: Sequence[Row]) -> None:
    """In columns of the terminal's width; elsewhere a line a key, for grep."""
    console = PageConsole(markup=False, highlight=False)
    if not console.is_terminal:
        console = PageConsole(markup=False, highlight=False, width=sum(map(len, (row.note for row in rows))) + 500)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None)
    for title in ("key", "value", "became", "what to know"):
        table.add_column(title, overflow="fold")
    for row in rows:
        key = f"{row.key} (TorchTitan's default)" if row.is_default else row.key
        table.add_row(key, _value(row), _became(row), _note(row), style=_style(row))
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _value(row: Row) -> str:
    return row.value if isinstance(row.value, str) else shown(row.value)


def _became(row: Row) -> str:
    """Overrides, as many as fit; the command has all of them."""
    if len(row.became) > MOST_SHOWN:
        return f"{' '.join(row.became[:1])} and {len(row.became) - 1} more"
    return " ".join(row.became) or _without(row)


def _without(row: Row) -> str:
    return "the default here too" if row.fate is Fate.SAME and not row.note else "-"


def _note(row: Row) -> str:
    return ": ".join(filter(None, ["" if row.fate is Fate.SAME else str(row.fate), row.note]))


def _style(row: Row) -> str:
    return {Fate.SAME: "", Fate.DIFFERS: "yellow", Fate.NO_MEANING: "dim"}[row.fate]


def _plain(converted: Converted) -> dict[str, object]:
    keys = [
        {"key": row.key, "value": row.value, "became": list(row.became), "fate": str(row.fate), "note": row.note, "default": row.is_default}
        for row in converted.rows
    ]
    problems = [{"where": problem.where, "what": problem.what, "fix": list(problem.fix)} for problem in converted.problems]
    command = None if problems else [*program_name().split(), *converted.overrides]
    return {"command": command, "keys": keys, "problems": problems}
