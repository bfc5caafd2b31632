"""Writing small files so that a reader, a full disk or a kill never meets half of one; and saying why the system refused."""

import errno
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from primus_app.config.errors import ExitCode, Problem, UserError

T = TypeVar("T")

TEMPORARY_PREFIX = ".tmp-"
"""Names that begin so are ours, unfinished, and may be deleted when no process holds the run."""

BLOCK = 1 << 16

ELSEWHERE = "or choose another place with workspace=<folder>"

FULL = (errno.ENOSPC, errno.EDQUOT)

FIXES = {
    errno.ENOSPC: f"free some space there, {ELSEWHERE}",
    errno.EDQUOT: f"your quota is used up: delete something there, {ELSEWHERE}",
    errno.EROFS: "the file system is mounted read-only: choose another place with workspace=<folder>",
    errno.EACCES: f"ask the owner for write permission (chmod, chgrp), {ELSEWHERE}",
    errno.EPERM: f"ask the owner for permission, {ELSEWHERE}",
    errno.ENOTDIR: f"a part of this path is a file, not a folder: move it away, {ELSEWHERE}",
    errno.EISDIR: f"a folder stands where a file should be: move it away, {ELSEWHERE}",
    errno.ENAMETOOLONG: "choose shorter names with exp_name=<name> or workspace=<folder>",
}


@contextmanager
def explain_os_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError of the block into a UserError (exit code 3): ``path``, what we were ``doing``, room on a full disk, what to do."""
    try:
        yield
    except OSError as error:
        fix = FIXES.get(error.errno or 0, f"check the path, {ELSEWHERE}")
        room = f"; {free_space(path)}" if error.errno in FULL else ""
        what = f"{error.strerror or error} while {doing}{room}"
        raise UserError(Problem(str(path), what, (fix,)), ExitCode.UNFIT_MACHINE) from error


def free_space(path: Path) -> str:
    """The free space for users on the file system that holds ``path``, or would: '3.1 of 64.0 GiB free'."""
    for folder in (path, *path.parents):
        with suppress(OSError):
            system = os.statvfs(folder)
            free, total = system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize
            # A disk can have room and still refuse: it has run out of inodes.
            inodes = ", but room for no further file (no free inodes)" if system.f_files and not system.f_favail else ""
            return f"{size_text(free)} of {size_text(total)} free at {folder}{inodes}"
    return "free space unknown"


def size_text(num_bytes: int) -> str:
    """'3.1 GiB', in the largest unit that fits."""
    for exponent, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if num_bytes >= 1 << exponent:
            return f"{num_bytes / (1 << exponent):.1f} {unit}"
    return f"{num_bytes / 1024:.0f} KiB"


def write_atomic(path: Path, text: str) -> None:
    """Put ``text`` into ``path`` so that a reader sees all of the old or all of the new, even after a crash. OSError leaves the old."""
    temporary = path.parent / f"{TEMPORARY_PREFIX}{path.name}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        write_new_file(temporary, text)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_new_file(path: Path, text: str) -> None:
    """Write a file that must not exist yet, down to the disk."""
    # Not tempfile: its files are mode 0600, and a team shares its runs.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(encode(text))
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a power loss, where its file system can."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


def encode(text: str) -> bytes:
    r"""UTF-8; what cannot be (bytes of an argument that were no text) becomes \udcXX, which JSON reads back."""
    return text.encode("utf-8", "backslashreplace")


def json_line(value: dict[str, Any]) -> str:
    """One line of JSON; NaN and infinity are refused, since jq does not read them."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


def json_text(value: Any) -> str:
    """JSON for the eye, two spaces a level."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def append_all(fd: int, data: bytes) -> None:
    """Append by one write to ``fd`` (opened with O_APPEND); when only part of it fits, the part is taken back and OSError raised."""
    written = os.write(fd, data)
    if written == len(data):
        return
    end = os.fstat(fd).st_size
    if os.pread(fd, written, end - written) == data[:written]:
        os.ftruncate(fd, end - written)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Append one line of JSON by a single write, so that lines of several processes of one host never mix."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        append_all(fd, (b"\n" if torn else b"") + encode(json_line(value)))
    finally:
        os.close(fd)


def after_newline(fd: int, end: int) -> int:
    """The offset after the last newline before ``end``; 0 when there is none."""
    while end > 0:
        start = max(0, end - BLOCK)
        at = os.pread(fd, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def read_text(path: Path) -> str | None:
    """The file's text, None when there is none."""
    with explain_os_errors(path, "reading it"):
        try:
            return path.read_text(encoding="utf-8", errors="backslashreplace")
        except FileNotFoundError:
            return None


def parse_file(path: Path, parse: Callable[[str], T]) -> T | None:
    """What ``parse`` makes of the file, None when there is none; its ValueError becomes a UserError that names the file."""
    text = read_text(path)
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        reason = _damage(error) if isinstance(error, ValidationError) else ": ".join(line.strip() for line in str(error).splitlines()[:3])
        fix = "something other than this program has changed it: restore it from a copy, or start anew with exp_name=<another name>"
        raise UserError(Problem(str(path), f"this file cannot be read ({reason})", (fix,))) from error


def _damage(error: ValidationError) -> str:
    """What is wrong in a file of ours, key by key."""
    found = []
    for detail in error.errors(include_url=False):
        key = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == "json_invalid":
            found.append(f"it is not JSON: {detail['ctx']['error']}")
        elif not key:
            found.append("it does not hold what this program writes there")
        elif detail["type"] in ("missing", "extra_forbidden", "unexpected_keyword_argument"):
            found.append(f"{key} is missing" if detail["type"] == "missing" else f"no such key: {key}")
        else:
            found.append(f"{key} may not be {json.dumps(detail['input'], default=str)[:80]}")
    return "; ".join(dict.fromkeys(found))


def complete_lines(path: Path) -> list[str]:
    """The lines that end in a newline, without it; a torn last line is left out. Empty when there is no file."""
    return (read_text(path) or "").split("\n")[:-1]
