"""The default corpus: the source files of the running Python's standard library, which every machine already has."""

import os
import sysconfig
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from primus_app.config.errors import ExitCode, Problem, UserError

SKIPPED_FOLDERS = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib"}
SKIPPED_FILES = ("_sysconfigdata", "sitecustomize", "usercustomize")
"""Written by whoever built or set up this Python, so the same version would differ from machine to machine."""


class Document(NamedTuple):
    """One source file: its path below the library's folder, with slashes, and its text."""

    name: str
    text: str


def documents(root: Path | None = None) -> list[Document]:
    """All non-empty UTF-8 ``.py`` files under ``root`` (default: the standard library's folder), sorted by name.

    Raises:
        UserError: this Python has no source files, for instance because its library lies in a zip file.
    """
    root = Path(sysconfig.get_path("stdlib")) if root is None else root
    found = sorted(_read(root), key=lambda document: document.name)
    if not found:
        fix = ("data=mock needs no files", "data=indexed data.path=… reads your own corpus")
        raise UserError(Problem("data.source", f"stdlib_text finds no Python source files in {root}.", fix), ExitCode.UNFIT_MACHINE)
    return found


def in_corpus_order(found: list[Document]) -> list[Document]:
    """The documents in the order of a hash of their names: shuffled once, so that any contiguous range is a fair sample of all."""
    return sorted(found, key=lambda document: blake2b(document.name.encode(), digest_size=16).digest())


def _read(root: Path) -> Iterator[Document]:
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        for name in files:
            path = Path(folder, name)
            if name.endswith(".py") and not name.startswith(SKIPPED_FILES) and (text := _text(path)):
                yield Document(path.relative_to(root).as_posix(), text)


def _text(path: Path) -> str:
    """The file's text; empty where it is unreadable or not UTF-8, so that it is left out like an empty file."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return ""
