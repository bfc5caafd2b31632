"""What a file's name says about how it is read: its format and its compression."""

from pathlib import PurePath
from typing import Literal, NamedTuple

from fsspec.compression import compr

from primus_app.config.errors import ExitCode, Problem, UserError

Format = Literal["text", "jsonl", "json", "parquet"]

FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"}
"""By ending; every other file is text. What .json holds is seen in its first line."""

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".lzma": "lzma", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4", ".zip": "zip"}
"""By ending, in fsspec's words; fsspec knows those whose library is installed."""

LIBRARIES = {"zstd": "zstandard", "lz4": "lz4"}


class Kind(NamedTuple):
    """How a file is read; ``compression`` is fsspec's word."""

    format: Format
    compression: str | None


def kind_of(name: str) -> Kind:
    """The kind that the endings of ``name`` say: book.txt, part-7.jsonl.gz, table.parquet."""
    *_, before, last = ("", "", *(ending.lower() for ending in PurePath(name).suffixes))
    compression = COMPRESSIONS.get(last)
    return Kind(FORMATS.get(before if compression else last, "text"), compression)


def check_kind(path: str, kind: Kind) -> None:
    """Raises UserError for a compression that cannot be read: as such, or without a library that is missing (code 3)."""
    if kind.format == "parquet" and kind.compression:
        raise UserError(Problem(path, "is a compressed Parquet file; Parquet has a compression of its own.", ("unpack it",)))
    if kind.compression == "zip":
        raise UserError(Problem(path, "is a zip archive, which may hold several files.", ("unpack it into a folder",)))
    if kind.compression and kind.compression not in compr:
        library = LIBRARIES.get(kind.compression)
        fix = (f"pip install {library}" if library else "install a Python with this module", "or unpack the files")
        raise UserError(Problem(path, f"is compressed by {kind.compression}, which this Python cannot read.", fix), ExitCode.UNFIT_MACHINE)
