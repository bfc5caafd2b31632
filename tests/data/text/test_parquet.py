"""Rows of Parquet files that pyarrow wrote, and what is told of broken ones."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from primus_app.config.errors import UserError
from primus_app.data.text.documents import documents
from primus_app.data.text.files import list_files

ROWS = [f"row {number} ä" for number in range(2500)]


def write(folder: Path, columns: dict[str, Any], **options: Any) -> str:
    path = folder / "a.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def texts(path: str, key: str = "text", skip: int = 0) -> list[str]:
    return [document.text for document in documents(list_files([path])[0], key, skip)]


def mistake(path: str, key: str = "text") -> str:
    with pytest.raises(UserError) as caught:
        texts(path, key)
    (problem,) = caught.value.problems
    assert problem.where == path
    assert problem.fix
    return str(problem)


@pytest.mark.parametrize("skip", [0, 1, 999, 1000, 1700, 2500])
def test_rows_in_order_and_from_the_middle(corpus: Path, skip: int) -> None:
    path = write(corpus, {"id": range(2500), "text": ROWS}, row_group_size=1000)
    assert texts(path, skip=skip) == ROWS[skip:]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_other_columns_of_text(corpus: Path, kind: pa.DataType) -> None:
    assert texts(write(corpus, {"text": pa.array(["a", "b", "a"]).cast(kind)})) == ["a", "b", "a"]


def test_positions_end_at_the_size(corpus: Path) -> None:
    file = list_files([write(corpus, {"text": ROWS})])[0]
    assert [document.position for document in documents(file, "text")][-1] == file.size


def test_a_column_that_is_missing_or_no_text(corpus: Path) -> None:
    path = write(corpus, {"id": [1], "content": ["a"]})
    advice = "data.text_key=content names a column of text in this file"
    assert f"has no column 'text' (data.text_key).\n  {advice}" in mistake(path)
    assert f"column 'id' (data.text_key) holds int64, not text.\n  {advice}" in mistake(path, "id")


def test_a_row_without_text(corpus: Path) -> None:
    rows: list[str | None] = [*ROWS[:1200], None, "x"]
    assert "row 1200: column 'text' holds no text (null)" in mistake(write(corpus, {"text": rows}))


def test_a_row_that_is_not_utf8(corpus: Path) -> None:
    column = pa.array([b"good", b"caf\xe9"], pa.binary())
    bad = pa.StringArray.from_buffers(2, column.buffers()[1], column.buffers()[2])
    assert "row 1: column 'text' is not UTF-8: byte 3 of the text" in mistake(write(corpus, {"text": bad}))


def test_no_rows(corpus: Path) -> None:
    assert "has no rows" in mistake(write(corpus, {"text": pa.array([], pa.string())}))


def test_cut_and_damaged(corpus: Path) -> None:
    path = Path(write(corpus, {"text": ROWS}, row_group_size=1000, use_dictionary=False))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "is no whole Parquet file" in mistake(str(path))
    path.write_bytes(b"text")
    assert "is no whole Parquet file" in mistake(str(path))
    second = pq.ParquetFile(pa.BufferReader(whole)).metadata.row_group(1).column(0).data_page_offset
    path.write_bytes(whole[:second] + b"\xff" * 200 + whole[second + 200 :])
    assert "cannot be read past row 1000 (row group 1)" in mistake(str(path))
