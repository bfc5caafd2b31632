"""The files of a corpus of text in their order, and the digest of their content, remembered while they do not change."""

import json
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.data.scan import Progress, write_atomically
from primus_app.data.text.formats import kind_of
from primus_app.plan.data_files import absolute

FORMAT = "primus_app text files 1"
MOST_PROBLEMS = 10
"""So many broken files are named; after that it is the folder that is wrong."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextFile:
    """A file as it was when it was listed; ``name`` is relative to the path that was given, with slashes."""

    path: str
    name: str
    size: int
    mtime_ns: int


def list_files(paths: Sequence[str]) -> list[TextFile]:
    """All files at and under ``paths``: path by path, sorted by name. Entries that begin with a dot are left out, unless named themselves.

    Raises:
        UserError: nothing is found, files are empty or unreadable, or one is reached on two ways.
    """
    files: list[TextFile] = []
    problems: list[Problem] = []
    for path in paths:
        root = Path(absolute(path))
        names = sorted(_names_under(root, problems)) if root.is_dir() else [""]
        if not names and not problems:
            fix = ("name the folder that holds the text; entries that begin with a dot are not read",)
            problems.append(Problem(str(root), "no file is in this folder or below it.", fix))
        for name in names:
            _add(files, problems, root, name)
            if len(problems) >= MOST_PROBLEMS:
                raise UserError(problems)
    if problems := problems or _twice(files):
        raise UserError(problems)
    return files


def content_digest(files: Sequence[TextFile], cache: Path, progress: Progress | None = None) -> str:
    """Digest of the files' kinds and bytes in their order (32 hex digits), as found before while no file has changed its size or time.

    ``progress`` is told (bytes read, all bytes).
    """
    memory = cache / f"files-{fingerprint(files)}.json"
    try:
        return str(json.loads(memory.read_text())["digest"])
    except (OSError, ValueError, TypeError, KeyError):
        digest = _digest(files, progress)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(memory, {"digest": digest})
    except OSError as error:
        log.warning("%s cannot be written (%s): each start will read all files again.", memory, error.strerror)
    return digest


def fingerprint(files: Sequence[TextFile]) -> str:
    """Changes when a file is added, removed, renamed, or has another size or time of change."""
    digest = blake2b(FORMAT.encode(), digest_size=16)
    for file in files:
        digest.update(json.dumps([file.path, file.name, file.size, file.mtime_ns]).encode())
    return digest.hexdigest()


def refuse_changes(files: Sequence[TextFile]) -> None:
    """Raises UserError where a file is no longer as it was listed."""
    for file in files:
        try:
            now = os.stat(file.path)
        except OSError as error:
            raise _unreadable(file.path, error) from error
        if (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns):
            what = f"changed while it was read: it had {file.size:,} bytes, now {now.st_size:,}."
            raise UserError(Problem(file.path, what, ("start again once nobody writes to it",)))


def _names_under(root: Path, problems: list[Problem]) -> Iterator[str]:
    """Relative names of all entries that are no folders. Links to folders are followed, each folder once."""
    seen: set[tuple[int, int]] = set()

    def note(error: OSError) -> None:
        problems.append(_unreadable(str(error.filename), error).problems[0])

    for folder, subfolders, names in os.walk(root, onerror=note, followlinks=True):
        here = os.stat(folder)
        if (here.st_dev, here.st_ino) in seen:  # a link to a folder above, or a second one to the same
            subfolders.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield from (Path(folder, name).relative_to(root).as_posix() for name in names if not name.startswith("."))


def _add(files: list[TextFile], problems: list[Problem], root: Path, name: str) -> None:
    path = str(root / name)
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            problems.append(Problem(path, "is no regular file.", ("move it elsewhere",)))
        elif found.st_size == 0:
            problems.append(Problem(path, "is empty: it ends at byte 0.", ("remove it, or copy it again if it should hold text",)))
        else:
            with open(path, "rb"):  # permission shows only here
                files.append(TextFile(path, name or root.name, found.st_size, found.st_mtime_ns))
    except OSError as error:
        problems += _unreadable(path, error).problems


def _twice(files: Sequence[TextFile]) -> list[Problem]:
    paths = [file.path for file in files]
    if len(set(paths)) == len(paths):
        return []
    twice = next(path for path in paths if paths.count(path) > 1)
    return [Problem("data.path", f"{twice} is reached by two of the paths.", ("name the folder above alone",))]


def _digest(files: Sequence[TextFile], progress: Progress | None) -> str:
    total, done = sum(file.size for file in files), 0
    digest = blake2b(FORMAT.encode(), digest_size=16)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for file, content in zip(files, pool.map(_file_digest, files), strict=True):
            digest.update(f"\0{kind_of(file.name)}\0{content}".encode())
            done += file.size
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


def _file_digest(file: TextFile) -> str:
    try:
        with open(file.path, "rb") as stream:
            return file_digest(stream, lambda: blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise _unreadable(file.path, error) from error


def _unreadable(path: str, error: OSError) -> UserError:
    return UserError(Problem(path, f"cannot be read: {error.strerror}.", ("make it readable for you, or leave it out of data.path",)))
