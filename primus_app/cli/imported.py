"""What the verbs on files of other programs share: their flags, the command, and a line for every key."""

import json
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from rich import box
from rich.table import Table

from primus_app.backends.imported.converted import Converted
from primus_app.backends.imported.row import Fate, Row
from primus_app.cli.arguments import OWN_FLAGS
from primus_app.cli.program import program_name
from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.config.validate import shown
from primus_app.plan.console import PageConsole
from primus_app.plan.neighbours import count

MOST_SHOWN = 3
"""Overrides of one key that its line shows."""

WIDTH = 100
"""Columns of the command."""


@dataclass(frozen=True)
class Importer:
    """One such verb: its name, what it calls its file, and whose defaults the table speaks of."""

    verb: str
    file: str
    defaults_of: str

    @property
    def usage(self) -> str:
        return f"{self.verb} {self.file} [--devices N] [--json]"


def import_arguments(importer: Importer, argv: Sequence[str]) -> Namespace:
    """``file``, ``devices`` and ``json``.

    Raises:
        UserError: for an unknown flag, a missing file, a number of devices that is none.
    """
    flags = OWN_FLAGS[importer.verb]
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("file", metavar=importer.file)
    parser.add_argument("--devices", type=_number_of_devices)
    parser.add_argument("--json", action="store_true")

    def refuse(message: str) -> NoReturn:
        unknown = next((word for word in argv if word.startswith("-") and word.partition("=")[0] not in flags), "")
        if unknown:
            fix = did_you_mean(nearest(unknown.partition("=")[0], flags)) or (f"usage: {importer.usage}",)
            raise UserError(Problem(unknown, f"no such flag of {importer.verb}", fix))
        raise UserError(Problem(importer.verb, message.removeprefix("argument "), (f"usage: {importer.usage}",)))

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(list(argv))


def _number_of_devices(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise UserError(Problem("--devices", f"{text} is not allowed; it takes a whole number above 0", ("for instance --devices 64",)))
    return int(text)


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


def show_import(importer: Importer, file: str, converted: Converted, refused: Sequence[Problem] = ()) -> None:
    """The command and the table; ``refused`` are what this program has against the command, said after it by the caller."""
    if not converted.problems:
        look = f"look first: {program_name()} plan and the same settings"
        print(f"{command_text(converted)}\n\n{'refused as it stands: the reasons are below the table' if refused else look}\n")
    _table(importer, converted.rows)
    fates = {fate: sum(row.fate == fate and not row.is_default for row in converted.rows) for fate in Fate}
    told = ", ".join(f"{number} {fate}" for fate, number in fates.items() if number)
    print(f"\n{count(sum(fates.values()), 'key')} of {file}: {told}")


def import_json(converted: Converted, **more: object) -> str:
    """The same as data."""
    keys = [
        {"key": row.key, "value": row.value, "became": list(row.became), "fate": str(row.fate), "note": row.note, "default": row.is_default}
        for row in converted.rows
    ]
    command = None if converted.problems else [*program_name().split(), *converted.overrides]
    return json.dumps({"command": command, "keys": keys, "problems": plain_problems(converted.problems), **more}, indent=2, default=str)


def plain_problems(problems: Sequence[Problem]) -> list[dict[str, object]]:
    return [{"where": problem.where, "what": problem.what, "fix": list(problem.fix)} for problem in problems]


def _table(importer: Importer, rows: Sequence[Row]) -> None:
    """In columns of the terminal's width; elsewhere a line a key, for grep."""
    console = PageConsole(markup=False, highlight=False)
    if not console.is_terminal:
        console = PageConsole(markup=False, highlight=False, width=sum(map(len, (row.note for row in rows))) + 500)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None)
    for title in ("key", "value", "became", "what to know"):
        table.add_column(title, overflow="fold")
    for row in rows:
        key = f"{row.key} ({importer.defaults_of})" if row.is_default else row.key
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
    return {Fate.SAME: "", Fate.DIFFERS: "yellow", Fate.NO_MEANING: "dim", Fate.UNKNOWN: "red"}[row.fate]
