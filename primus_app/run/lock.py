"""One process at a time carries a run out: a lock on the run directory that dies with its holders."""

import errno
import fcntl
import json
import os
import shlex
import socket
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.run.clock import utc_now
from primus_app.run.directory import RunDirectory
from primus_app.run.files import encode, explain_os_errors, json_line
from primus_app.run.redact import redact_argument

TRIES = 100


class RunLock:
    """The held lock. A child that inherits ``fileno()`` (pass_fds) keeps it held for as long as it lives."""

    def __init__(self, path: Path, fd: int, created: Sequence[Path]) -> None:
        self.path = path
        self.created = tuple(created)
        """The folders that did not exist before, outermost first."""
        self._fd: int | None = fd

    def fileno(self) -> int:
        """The descriptor that carries the lock."""
        if self._fd is None:
            raise ValueError("the lock has been released")
        return self._fd

    def release(self) -> None:
        """Let go; a child that inherited the lock still holds it. Twice is once."""
        # Closing, not LOCK_UN, which would take the lock from the children too: flock belongs to the open file description.
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def undo(self) -> None:
        """Let go and remove the lock's file and the folders made for it, as far as they are empty."""
        self.path.unlink(missing_ok=True)
        self.release()
        remove_empty(self.created)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def acquire_lock(run: RunDirectory) -> RunLock:
    """Take the run for this process, creating its directory if need be; never waits.

    UserError (code 2) tells who holds it; UserError (code 3) when the file system refuses. A failure leaves nothing behind.
    """
    created: list[Path] = []
    try:
        with explain_os_errors(run.path, "creating the run's folder"):
            fd = _open_locked(run, created)
        with explain_os_errors(run.lock_file, "writing who holds the run"):
            _write_holder(run.lock_file, fd)
    except BaseException:
        remove_empty(created)
        raise
    return RunLock(run.lock_file, fd, created)


def _open_locked(run: RunDirectory, created: list[Path]) -> int:
    for _ in range(TRIES):
        make_folders(run.path, created)
        try:
            fd = os.open(run.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # another process has just undone its new run
            continue
        try:
            _flock(fd, run)
        except BaseException:
            os.close(fd)
            raise
        if _is_file_at(fd, run.lock_file):
            return fd
        os.close(fd)
    raise OSError(errno.EBUSY, "other processes keep creating and deleting it")


def _flock(fd: int, run: RunDirectory) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(_held_problem(run, _read_holder(fd))) from error
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
        fix = "mount it with locks (Lustre: -o flock), or choose another place with workspace=<folder>"
        raise UserError(Problem(str(run.path), "this file system has no file locks", (fix,)), ExitCode.UNFIT_MACHINE) from error


def _is_file_at(fd: int, path: Path) -> bool:
    """Whether the locked file is still the one at ``path``; undo() may have removed it between open and flock."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.stat(path))
    return False


def _write_holder(path: Path, fd: int) -> None:
    text = json_line(
        {"pid": os.getpid(), "host": socket.gethostname(), "started": utc_now(), "command": [redact_argument(word) for word in sys.argv]}
    )
    try:
        os.ftruncate(fd, 0)
        if os.pwrite(fd, encode(text), 0) < len(encode(text)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except BaseException:
        path.unlink(missing_ok=True)
        os.close(fd)
        raise


def _read_holder(fd: int) -> dict[str, Any]:
    """Who wrote the file last; empty while the holder is still writing it."""
    with suppress(ValueError):
        holder = json.loads(os.pread(fd, 1 << 20, 0))
        return holder if isinstance(holder, dict) else {}
    return {}


def _held_problem(run: RunDirectory, holder: dict[str, Any]) -> Problem:
    if not holder:
        return Problem(str(run.path), "another process has just taken this run", _ways_out(run))
    who = f"host {holder.get('host')}, pid {holder.get('pid')}, since {holder.get('started')}"
    if _has_ended(holder):
        what = f"processes of this run are still alive, though the one that started them has ended ({who})"
        return Problem(str(run.path), what, (f"fuser -v {shlex.quote(str(run.lock_file))} shows them", *_ways_out(run)))
    return Problem(str(run.path), f"another process is carrying this run out ({who})", _ways_out(run))


def _ways_out(run: RunDirectory) -> tuple[str, str]:
    return ("wait until it has ended; the same command then continues the run", "or start another run with exp_name=<another name>")


def _has_ended(holder: dict[str, Any]) -> bool:
    return holder.get("host") == socket.gethostname() and isinstance(holder.get("pid"), int) and not Path(f"/proc/{holder['pid']}").exists()


def make_folders(path: Path, created: list[Path], tries: int = 10) -> None:
    """mkdir -p that adds each folder it made itself to ``created``; safe against others doing and undoing the same."""
    try:
        path.mkdir()
    except FileNotFoundError:
        if tries == 0:
            raise
        make_folders(path.parent, created)
        make_folders(path, created, tries - 1)
    except FileExistsError:
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except FileNotFoundError:  # Another process has just undone it, or it is a link that leads nowhere.
            if tries:
                return make_folders(path, created, tries - 1)
            is_folder = False
        if not is_folder:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    else:
        created.append(path)


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove those of ``folders`` that are empty, innermost first."""
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()
