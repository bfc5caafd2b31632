"""What counts as a document, and the exact place of each mistake in a file."""

import bz2
import gzip
import io
import lzma
from collections.abc import Callable

import pytest

from primus_app.config.errors import ExitCode, UserError
from primus_app.data.text.documents import documents
from primus_app.data.text.files import TextFile
from primus_app.data.text.formats import Kind, kind_of

Listed = Callable[[str, bytes], TextFile]
LINES = b'{"text": "one"}\n\n{"n": 1, "text": "zwei \\u00e4"}\n  \n{"text": ""}'


def texts(file: TextFile, key: str = "text", skip: int = 0) -> list[str]:
    return [document.text for document in documents(file, key, skip)]


def mistake(file: TextFile, key: str = "text") -> str:
    with pytest.raises(UserError) as caught:
        texts(file, key)
    (problem,) = caught.value.problems
    assert problem.where == file.path
    assert problem.fix
    return problem.what


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("book.txt", ("text", None)),
        ("README", ("text", None)),
        ("v1.2.md", ("text", None)),
        ("page.HTML.GZ", ("text", "gzip")),
        ("a.b.jsonl", ("jsonl", None)),
        ("a.ndjson.zst", ("jsonl", "zstd")),
        ("c4.json.gz", ("json", "gzip")),
        ("t.parquet", ("parquet", None)),
        ("x.xz", ("text", "xz")),
    ],
)
def test_kinds(name: str, kind: tuple[str, str | None]) -> None:
    assert kind_of(name) == Kind(*kind)  # type: ignore[arg-type]


def test_a_file_of_text_is_one_document_unchanged(listed: Listed) -> None:
    content = "a\r\nb\n\n ä\x00\n"
    file = listed("a.txt", content.encode())
    assert texts(file) == [content]
    assert texts(file, skip=1) == []


def test_each_line_is_a_document_and_blank_ones_are_none(listed: Listed) -> None:
    file = listed("a.jsonl", LINES)
    assert texts(file) == ["one", "zwei ä", ""]
    assert [texts(file, skip=skip) for skip in (1, 2, 3)] == [["zwei ä", ""], [""], []]
    assert [document.position for document in documents(file, "text")][-1] == len(LINES)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_byte_order_mark_before_json_is_no_content(listed: Listed, name: str) -> None:
    assert texts(listed(name, b"\xef\xbb\xbf" + LINES)) == texts(listed("b.jsonl", LINES))
    assert "line 1, byte 3: " in mistake(listed("c.jsonl", b"\xef\xbb\xbf{nothing}\n"))


def test_json_is_lines_where_the_first_is_a_document(listed: Listed) -> None:
    assert texts(listed("a.json", LINES)) == ["one", "zwei ä", ""]
    for content in (b'{\n "text": "one"}', b'{"name": "package"}\n', b"[1]", b"not json"):
        assert texts(listed("b.json", content)) == [content.decode()]


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_compressed(listed: Listed, ending: str, pack: Callable[[bytes], bytes]) -> None:
    assert texts(listed(f"a.jsonl.{ending}", pack(LINES))) == ["one", "zwei ä", ""]
    assert texts(listed(f"a.txt.{ending}", pack(b"x"))) == ["x"]
    whole = pack(bytes(range(32, 127)) * 2000)
    assert "byte" in mistake(listed(f"b.txt.{ending}", whole[: len(whole) // 2]))
    assert "is cut short or damaged" in mistake(listed(f"c.jsonl.{ending}", pack(LINES)[:-9]))
    assert "is cut short or damaged" in mistake(listed(f"d.txt.{ending}", b"not packed at all"))
    assert "unpacks to ends at byte 0" in mistake(listed(f"e.txt.{ending}", pack(b"")))


def test_a_cut_gzip_names_the_byte(listed: Listed) -> None:
    """Level 0 stores: after a header of 10 bytes and 5 of the block, byte k of the file is byte k - 15 of the text."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=0, mtime=0) as stream:
        stream.write(b"0123456789" * 100)
    what = mistake(listed("a.txt.gz", packed.getvalue()[:500]))
    assert "byte 485 of what it unpacks to cannot be read (byte 500 of the file): Compressed file ended before" in what


def test_a_compression_without_its_library(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("fsspec.compression").compression.compr, "zstd", raising=False)
    with pytest.raises(UserError, match=r"a.txt.zst: is compressed by zstd, which this Python cannot read") as caught:
        texts(listed("a.txt.zst", b"x"))
    assert caught.value.code == ExitCode.UNFIT_MACHINE
    assert caught.value.problems[0].fix[0] == "pip install zstandard"


def test_archives_are_to_be_unpacked(listed: Listed) -> None:
    assert "zip archive" in mistake(listed("a.zip", b"PK"))
    assert "compressed Parquet" in mistake(listed("a.parquet.gz", b"x"))


def test_not_utf8_names_the_byte(listed: Listed) -> None:
    assert "byte 3: 0xe9 is not UTF-8" in mistake(listed("a.txt", "café".encode("latin-1")))
    line = '{"text": "café"}\n'
    what = mistake(listed("a.jsonl", line.encode() + line.encode("latin-1")))
    assert "line 2, byte 31: 0xe9 is not UTF-8" in what  # the first line has 18 bytes, é is the 14th of the second


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"text": "cut', "line 3, byte 17: is not JSON: Unterminated string starting at, column 10."),
        (b'{"text": "a"} {"text": "b"}', "line 3, byte 17: is not JSON: Extra data, column 15."),
        (b'["text"]', "line 3, byte 17: is no JSON object."),
        (b'{"tekst": "a"}', "line 3, byte 17: has no field 'text' (data.text_key)."),
        (b'{"text": null}', "line 3, byte 17: field 'text' is null, not text."),
        (b'{"text": ["a"]}', """line 3, byte 17: field 'text' is ["a"], not text."""),
        (b'{"text": "\\ud800"}', "line 3, byte 17: field 'text' has half of a surrogate pair"),
    ],
)
def test_a_broken_line_is_named(listed: Listed, line: bytes, told: str) -> None:
    assert told in mistake(listed("a.jsonl", b'{"text": "one"}\n\n' + line + b'\n{"text": "two"}\n'))


def test_the_nearest_field_is_offered(listed: Listed) -> None:
    with pytest.raises(UserError, match=r"data.text_key=tekst names a field"):
        texts(listed("a.jsonl", b'{"id": 1, "tekst": "a"}'))
    with pytest.raises(UserError, match=r"data.text_key=content names a field"):
        texts(listed("a.jsonl", b'{"content": "a"}'))


def test_only_blank_lines(listed: Listed) -> None:
    assert mistake(listed("a.jsonl", b"\n\n \n")) == "holds no document: 4 bytes without a line of JSON."
