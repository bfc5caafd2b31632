"""The documents of one file of text or JSON lines, and where exactly one is broken."""

import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from lzma import LZMAError
from typing import Any, BinaryIO, NamedTuple

from fsspec.compression import compr

from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import nearest
from primus_app.data.text.files import TextFile
from primus_app.data.text.formats import check_kind, kind_of

BROKEN_STREAM = (EOFError, zlib.error, LZMAError, OSError)
"""What gzip, bz2 and lzma raise for a stream that is cut or damaged."""


class Document(NamedTuple):
    """A text, and how many bytes of its file (as it lies on the disk) have been read up to its end."""

    text: str
    position: int


def documents(file: TextFile, text_key: str, skip: int = 0) -> Iterator[Document]:
    """The documents of ``file`` after the first ``skip``: all of a text, each line of JSON lines, each row of Parquet.

    Raises:
        UserError: the file is broken, with the byte, line or row.
    """
    kind = kind_of(file.name)
    check_kind(file.path, kind)
    if kind.format == "parquet":
        from primus_app.data.text.parquet import rows

        yield from (Document(text, position) for text, position in rows(file, text_key, skip))
        return
    lines = kind.format == "jsonl" or (kind.format == "json" and text_key in (first_object(file, kind.compression) or ()))
    with unpacked(file, kind.compression) as (raw, stream):
        reader = _json_lines(file, stream, text_key, skip) if lines else _whole(file, stream, skip)
        yield from (Document(text, min(raw.tell(), file.size)) for text in reader)


class Line(NamedTuple):
    """A line that is not blank; ``number`` counts from 1 with the blank ones, ``begin`` is its first byte."""

    number: int
    begin: int
    content: bytes

    @property
    def where(self) -> str:
        return f"line {self.number}, byte {self.begin}"


def json_lines(file: TextFile, stream: BinaryIO) -> Iterator[Line]:
    """The lines of ``stream`` that are not blank, without a byte order mark before them; UserError where there is none."""
    offset, found = 0, False
    for number, content in enumerate(stream, 1):
        mark = len(BOM_UTF8) if number == 1 and content.startswith(BOM_UTF8) else 0
        if content[mark:].strip():
            found = True
            yield Line(number, offset + mark, content[mark:])
        offset += len(content)
    if not found:
        raise UserError(Problem(file.path, f"holds no document: {offset} bytes without a line of JSON.", ("remove it",)))


def json_object(file: TextFile, line: Line, example: str, *advice: str) -> dict[str, Any]:
    """The JSON object of ``line``; ``example`` shows one. Raises UserError, with the place and ``advice``, where it is no JSON."""
    try:
        values = json.loads(decoded(file, line.content.rstrip(), line.begin, f"line {line.number}, "))
    except (ValueError, RecursionError) as error:
        at = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        what = f"{line.where}: is not JSON: {getattr(error, 'msg', error)}{at}."
        raise UserError(Problem(file.path, what, ("each line of .jsonl is one whole JSON object", *advice))) from None
    if not isinstance(values, dict):
        raise UserError(Problem(file.path, f"{line.where}: is no JSON object.", (f"a line looks like {example}",)))
    return values


def _whole(file: TextFile, stream: BinaryIO, skip: int) -> Iterator[str]:
    if skip:
        return
    content = stream.read()
    if not content:
        raise UserError(Problem(file.path, "is empty: what it unpacks to ends at byte 0.", ("remove it",)))
    yield decoded(file, content, 0, "")


def _json_lines(file: TextFile, stream: BinaryIO, text_key: str, skip: int) -> Iterator[str]:
    return (_text_of(file, line, text_key) for line in islice(json_lines(file, stream), skip, None))


def _text_of(file: TextFile, line: Line, text_key: str) -> str:
    values, where = json_object(file, line, f'{{"{text_key}": "…"}}', "other text is read from .txt"), line.where
    if text_key not in values:
        fields = [key for key, value in values.items() if isinstance(value, str)]
        near = nearest(text_key, fields, count=1, cutoff=0.6) or fields[:3]
        advice = tuple(f"data.text_key={key} names a field that this line has" for key in near)
        raise UserError(Problem(file.path, f"{where}: has no field {text_key!r} (data.text_key).", advice or ("leave the line out",)))
    text = values[text_key]
    if not isinstance(text, str):
        raise UserError(Problem(file.path, f"{where}: field {text_key!r} is {json.dumps(text)[:40]}, not text.", ("remove the line",)))
    if not is_unicode(text):
        what = f"{where}: field {text_key!r} has half of a surrogate pair, which is no character."
        raise UserError(Problem(file.path, what, ("write the line again from text that is UTF-8",)))
    return text


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be written as UTF-8; JSON may escape halves of characters."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def decoded(file: TextFile, content: bytes, begin: int, where: str) -> str:
    """``content``, which begins at byte ``begin`` of ``file``, as text; UserError with the byte that is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        what = f"{where}byte {begin + error.start}: {content[error.start]:#04x} is not UTF-8 ({error.reason})."
        fix = ("convert it, for instance with iconv -t UTF-8, or leave it out if it is no text",)
        raise UserError(Problem(file.path, what, fix)) from None


def first_object(file: TextFile, compression: str | None) -> dict[str, Any] | None:
    """The first line where it is a whole JSON object, as in corpora that call JSON lines .json; else None."""
    with unpacked(file, compression) as (_, stream):
        first = stream.readline()
    try:
        values = json.loads(first.removeprefix(BOM_UTF8))
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


@contextmanager
def unpacked(file: TextFile, compression: str | None) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The file as it lies on the disk, and what it unpacks to; reading past damage raises UserError with the place."""
    with _open(file.path) as raw, _unpacked(raw, compression) as stream, _explained(file, raw, stream):
        yield raw, stream


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb", buffering=1 << 20)
    except OSError as error:
        raise UserError(Problem(path, f"cannot be read: {error.strerror}.", ("make it readable for you",))) from error


def _unpacked(raw: BinaryIO, compression: str | None) -> BinaryIO:
    if compression is None:
        return raw
    unpack: Callable[..., BinaryIO] = compr[compression]
    return unpack(raw, mode="rb")


@contextmanager
def _explained(file: TextFile, raw: BinaryIO, stream: BinaryIO) -> Iterator[None]:
    try:
        yield
    except BROKEN_STREAM as error:
        reason = str(error).rstrip(".") or type(error).__name__
        if stream is raw:
            what = f"cannot be read past byte {raw.tell()}: {reason}."
        else:
            place = f"byte {stream.tell()} of what it unpacks to cannot be read (byte {raw.tell()} of the file)"
            what = f"is cut short or damaged: {place}: {reason}."
        raise UserError(Problem(file.path, what, ("copy or download it again",))) from error
