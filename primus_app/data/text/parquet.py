"""The documents of a Parquet file: one text column, row by row."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import nearest
from primus_app.data.text.files import TextFile

ROWS = 1000
"""Rows that are held together; a row group may hold a million."""


def rows(file: TextFile, column: str, skip: int = 0) -> Iterator[tuple[str, int]]:
    """(text, bytes of the file up to there, in proportion to its rows) of each row after the first ``skip``.

    Raises:
        UserError: the file is broken, has no such column of text, or a row without text, with its number from 0.
    """
    with opened(file) as table:
        _check_column(file, table.schema_arrow, column)
        total = table.metadata.num_rows
        for row, batch in batches(file, table, [column], skip):
            for number, text in enumerate(_texts(file, batch.column(0), row, column), row + 1):
                if number > skip:
                    yield text, file.size * number // total


@contextmanager
def opened(file: TextFile) -> Iterator[Any]:
    """pyarrow's ParquetFile. Raises UserError for one that is broken or has no rows."""
    import pyarrow.parquet as parquet
    from pyarrow import ArrowException

    try:
        table = parquet.ParquetFile(file.path)
    except (ArrowException, OSError) as error:
        raise _broken(file, f"is no whole Parquet file: {_first_line(error)}") from error
    with table:
        if table.metadata.num_rows == 0:
            raise UserError(Problem(file.path, "has no rows.", ("remove it",)))
        yield table


def batches(file: TextFile, table: Any, columns: list[str], skip: int = 0) -> Iterator[tuple[int, Any]]:
    """(number of its first row from 0, rows of ``columns``); row groups that lie within the first ``skip`` rows are passed over.

    Raises:
        UserError: the file is damaged, with the row.
    """
    from pyarrow import ArrowException

    row = 0
    for group in range(table.metadata.num_row_groups):
        rows_inside = table.metadata.row_group(group).num_rows
        if row + rows_inside <= skip:
            row += rows_inside
            continue
        try:
            for batch in table.iter_batches(ROWS, row_groups=[group], columns=columns):
                yield row, batch
                row += len(batch)
        except (ArrowException, OSError) as error:
            raise _broken(file, f"cannot be read past row {row} (row group {group}): {_first_line(error)}") from error


def _check_column(file: TextFile, schema: Any, column: str) -> None:
    columns = [field.name for field in schema if _is_text(field.type)]
    if column in columns:
        return
    near = nearest(column, columns, count=1, cutoff=0.6) or columns[:3]
    fix = tuple(f"data.text_key={name} names a column of text in this file" for name in near) or ("it has no column of text: leave it out",)
    if column not in schema.names:
        raise UserError(Problem(file.path, f"has no column {column!r} (data.text_key).", fix))
    raise UserError(Problem(file.path, f"column {column!r} (data.text_key) holds {schema.field(column).type}, not text.", fix))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _texts(file: TextFile, column: Any, first: int, name: str) -> list[str]:
    if column.null_count:
        row = first + column.is_null().to_pylist().index(True)
        raise UserError(Problem(file.path, f"row {row}: column {name!r} holds no text (null).", ("leave such rows out of the file",)))
    try:
        texts: list[str] = column.to_pylist()
        return texts
    except UnicodeDecodeError:
        row, reason = next((first + at, reason) for at in range(len(column)) if (reason := _not_unicode(column[at])))
        fix = ("write the column again from text that is UTF-8",)
        raise UserError(Problem(file.path, f"row {row}: column {name!r} is not UTF-8: {reason}.", fix)) from None


def _not_unicode(value: Any) -> str:
    try:
        value.as_py()
    except UnicodeDecodeError as error:
        return f"byte {error.start} of the text, {error.reason}"
    return ""


def _broken(file: TextFile, what: str) -> UserError:
    return UserError(Problem(file.path, f"{what.rstrip('.')}.", ("copy or download it again",)))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
