"""Folders that are built once, whole or not at all, and shared by all processes of this user."""

import errno
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from primus_app.config.errors import ExitCode, Problem, UserError

META = "meta.json"
TEMPORARY = ".building-"
UNFINISHED = ".unfinished-"
FULL = {errno.ENOSPC, errno.EDQUOT}
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}

Facts = dict[str, Any]
log = logging.getLogger(__name__)


def cache_root(cache_dir: str | None) -> Path:
    """``data.cache_dir``, or primus_app under the user's cache folder (XDG base directories: a relative XDG_CACHE_HOME is ignored)."""
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if cache_dir is not None:
            return Path(cache_dir).expanduser().absolute()
        return (xdg if xdg.is_absolute() else Path("~/.cache").expanduser()) / "primus_app"
    except RuntimeError as error:  # containers often run users without a home
        fix = ("data.cache_dir=/some/folder keeps prepared data there",)
        raise UserError(Problem("data.cache_dir", f"no folder for prepared data: {error}", fix)) from error


def cached_folder(root: Path, name: str, build: Callable[[Path], Facts], needed_bytes: int) -> tuple[Path, Facts]:
    """The folder ``root``/``name`` and the facts that ``build`` returned for it, built by this or an earlier process.

    ``build`` fills an empty folder beside it, which is renamed once everything is on the disk. A folder that lost or changed the
    size of a file is built again. What a killed process left is removed by the next one that builds.

    Raises:
        UserError: the cache cannot be written; nothing half-written stays.
    """
    folder = root / name
    if (facts := _facts(folder)) is not None:
        return folder, facts
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root) as alone:
            if alone:
                _remove_leftovers(root)
            if (facts := _facts(folder)) is None:
                _remove_damaged(folder)
                facts = _build(folder, build)
    except OSError as error:
        raise _unwritable(root, error, needed_bytes) from error
    return folder, facts


def resumable_folder(root: Path, name: str, build: Callable[[Path], Facts]) -> tuple[Path, Facts]:
    """Like ``cached_folder``, for hours of work: ``build`` is given what an earlier process left unfinished, and goes on with it.

    Only one process at a time works on ``name``; others that want it wait, and those that want something else do not.

    Raises:
        UserError: the cache cannot be written; what was done stays for the next attempt.
    """
    folder = root / name
    if (facts := _facts(folder)) is not None:
        return folder, facts
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root, f".lock-{name}") as alone:
            if (facts := _facts(folder)) is None:
                _remove_damaged(folder)
                facts = _go_on(root / f"{UNFINISHED}{name}", folder, build) if alone else _build(folder, build)
    except OSError as error:
        raise _unwritable(root, error) from error
    return folder, facts


def _facts(folder: Path) -> Facts | None:
    """Facts of a complete folder; None where it is missing or damaged."""
    try:
        meta = json.loads((folder / META).read_text())
        sizes = {name: (folder / name).stat().st_size for name in meta["files"]}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return meta["facts"] if sizes == meta["files"] else None


def _build(folder: Path, build: Callable[[Path], Facts]) -> Facts:
    temporary = Path(mkdtemp(prefix=TEMPORARY, dir=folder.parent))
    try:
        facts = _complete(temporary, build)
        # mkdtemp keeps others out; a cache shared by a group follows the umask like any other folder.
        temporary.chmod(0o777 & ~_umask())
        return _move(temporary, folder, facts)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _go_on(unfinished: Path, folder: Path, build: Callable[[Path], Facts]) -> Facts:
    unfinished.mkdir(exist_ok=True)
    try:
        return _move(unfinished, folder, _complete(unfinished, build))
    except UserError:  # What is mended is other content, and so has another name.
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _complete(folder: Path, build: Callable[[Path], Facts]) -> Facts:
    (folder / META).unlink(missing_ok=True)
    facts = build(folder)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    (folder / META).write_text(json.dumps({"files": sizes, "facts": facts}, indent=1))
    for path in (*folder.iterdir(), folder):
        _to_disk(path)
    return facts


def _move(temporary: Path, folder: Path, facts: Facts) -> Facts:
    try:
        temporary.rename(folder)
    except OSError:
        # Without working locks another process may have been faster; content is keyed by name, so its folder is as good.
        if (winner := _facts(folder)) is None:
            raise
        return winner
    _to_disk(folder.parent)
    return facts


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def _lock(root: Path, name: str = ".lock") -> Iterator[bool]:
    """Holds the cache's lock, waiting for it; False where the file system has no locks. The kernel frees a killed process's lock."""
    with (root / name).open("a") as stream:
        try:
            _acquire(stream.fileno(), root)
            alone = True
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            alone = False
        yield alone


def _acquire(descriptor: int, root: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("Waiting for another process that is preparing data in %s.", root)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _remove_leftovers(root: Path) -> None:
    for leftover in root.glob(f"{TEMPORARY}*"):
        log.info("Removing %s, left by a process that was stopped while it prepared data.", leftover)
        shutil.rmtree(leftover, ignore_errors=True)


def _remove_damaged(folder: Path) -> None:
    if folder.exists():
        log.warning("%s is damaged: files are missing or have changed size. It is built again.", folder)
        shutil.rmtree(folder)


def _unwritable(root: Path, error: OSError, needed_bytes: int | None = None) -> UserError:
    full = error.errno in FULL
    message = f"prepared data cannot be written to {root}: {error.strerror}."
    if needed_bytes is not None:
        message += f" It takes {needed_bytes:,} bytes ({needed_bytes / 1e6:.1f} MB)."
    elif full:
        message += " What is done is kept there; with more room the same command goes on with it."
    fix = ("data.cache_dir=/another/folder puts it where there is room and you may write",)
    return UserError(Problem("data.cache_dir", message, fix), ExitCode.UNFIT_MACHINE)
