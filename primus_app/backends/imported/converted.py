"""A file of another program as one command line of ours, with an account of every key."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from primus_app.backends.imported.row import Fate, Row
from primus_app.config.errors import Problem


@dataclass(frozen=True)
class Converted:
    """The overrides of the command, what became of every key, and what has to be decided before there is a command."""

    overrides: tuple[str, ...]
    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]


def in_file_order(rows: Iterable[Row], written: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Row]:
    """The keys of the file in its order and words, then the other program's defaults that are not ours.

    ``names`` has a key's name in ``rows`` where that is another one.
    """
    rows = list(rows)
    by_name = {row.key: row for row in rows}
    yield from (replace(by_name[names.get(key, key)], key=key, value=value) for key, value in written.items())
    given = {names.get(key, key) for key in written}
    matters = (row for row in rows if row.key not in given and (row.became or row.fate is Fate.DIFFERS))
    yield from (replace(row, is_default=True) for row in matters)
