"""The records of one file of instructions: lines of JSON, entries of a JSON list, or rows of Parquet, each with its place."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any, NamedTuple

from primus_app.config.errors import Problem, UserError
from primus_app.data.instructions.conversation import Fields
from primus_app.data.text import parquet
from primus_app.data.text.documents import decoded, first_object, json_lines, json_object, unpacked
from primus_app.data.text.files import TextFile
from primus_app.data.text.formats import check_kind, kind_of

EXAMPLE = '{"prompt": "…", "response": "…"}, or {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'


class Record(NamedTuple):
    """``values`` by field, or the problem that there is none; ``position``: bytes of the file that were read up to its end."""

    values: dict[str, Any] | Problem
    where: str
    position: int


def records(file: TextFile, fields: Fields) -> Iterator[Record]:
    """All records of ``file``; of Parquet only the columns in ``fields``. A line that is no object is a problem, reading goes on.

    Raises:
        UserError: the file as a whole is of no known kind, or broken.
    """
    kind = kind_of(file.name)
    check_kind(file.path, kind)
    if kind.format == "text":
        fix = ("name it .jsonl if each line is one JSON object", "data=text reads plain text")
        raise UserError(Problem(file.path, "holds no instructions by its name: they are read from .jsonl, .json and .parquet.", fix))
    if kind.format == "parquet":
        yield from _rows(file, fields)
    elif kind.format == "jsonl" or first_object(file, kind.compression) is not None:
        yield from _lines(file, kind.compression)
    else:
        yield from _entries(file, kind.compression)


def _lines(file: TextFile, compression: str | None) -> Iterator[Record]:
    with unpacked(file, compression) as (raw, stream):
        for line in json_lines(file, stream):
            position = min(raw.tell(), file.size)
            try:
                yield Record(json_object(file, line, EXAMPLE), line.where, position)
            except UserError as error:
                yield Record(error.problems[0], line.where, position)


def _entries(file: TextFile, compression: str | None) -> Iterator[Record]:
    with unpacked(file, compression) as (_, stream):
        content = stream.read()
    try:
        found = json.loads(decoded(file, content.removeprefix(BOM_UTF8), 0, ""))
    except (ValueError, RecursionError) as error:
        at = f"line {error.lineno}, column {error.colno}: " if isinstance(error, json.JSONDecodeError) else ""
        fix = (".json is a list of objects, or one whole object on each line",)
        raise UserError(Problem(file.path, f"{at}is not JSON: {getattr(error, 'msg', error)}.", fix)) from None
    if not isinstance(found, list) or not found:
        what = "is no list of objects." if not isinstance(found, list) else "is an empty list."
        raise UserError(Problem(file.path, what, (f"an entry looks like {EXAMPLE}",)))
    for number, values in enumerate(found):
        where = f"entry {number}, counted from 0"
        problem = Problem(file.path, f"{where}: is no JSON object.", (f"an entry looks like {EXAMPLE}",))
        yield Record(values if isinstance(values, dict) else problem, where, file.size * (number + 1) // len(found))


def _rows(file: TextFile, fields: Fields) -> Iterator[Record]:
    with parquet.opened(file) as table:
        total, names = table.metadata.num_rows, table.schema_arrow.names
        columns = [name for name in fields.names if name in names]
        if fields.messages not in columns and len(columns) < len({fields.prompt, fields.response}):
            yield Record(dict.fromkeys(names, ""), "every row", 0)  # Its fields are told as those of a line would be.
            return
        for first, batch in parquet.batches(file, table, columns):
            for row, values in enumerate(_values(file, batch, first), first):
                yield Record(values, f"row {row}", file.size * (row + 1) // total)


def _values(file: TextFile, batch: Any, first: int) -> list[dict[str, Any]]:
    try:
        values: list[dict[str, Any]] = batch.to_pylist()
        return values
    except UnicodeDecodeError as error:
        what = f"rows {first} to {first + len(batch) - 1}: one is not UTF-8: {error.reason}."
        raise UserError(Problem(file.path, what, ("write the column again from text that is UTF-8",))) from None
