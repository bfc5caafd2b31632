"""The folder that a conversion writes: whether it may be written, and writing it so that it is there as a whole or not at all."""

import errno
import fcntl
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.run.directory import RunDirectory
from primus_app.run.files import FULL, TEMPORARY_PREFIX, free_space, size_text, sync_folder
from primus_app.run.lock import make_folders, remove_empty

FORMATS = ("hf", "torchtitan", "megatron")
ELSEWHERE = "choose another place: convert SRC DST --to …"
SPARE_BYTES = 16 << 20
"""Room for headers, configuration and tokenizer beside the weights."""

LOCKED = "config.json"
"""Of the files in the folder the first one."""

TAKEN = "exists already, and nothing is overwritten"


def check_output(output: Path) -> list[Problem]:
    """What is in the way of ``output``: nothing is ever overwritten, no run's own files are mixed with others, one writes at a time."""
    try:
        return _in_the_way(output)
    except OSError as error:  # A name that is too long, or a folder that others may not look into.
        return [Problem(str(output), error.strerror or str(error), (ELSEWHERE,))]


def _in_the_way(output: Path) -> list[Problem]:
    above = next((folder for folder in output.parents if folder.exists() or folder.is_symlink()), output)
    if above != output and not above.is_dir():
        return [Problem(str(output), f"cannot be made: {above} is {'a file' if above.exists() else 'a broken link'}", (ELSEWHERE,))]
    is_empty = output.is_dir() and not any(output.iterdir())
    if (output.exists() or output.is_symlink()) and not is_empty:
        return [Problem(str(output), TAKEN, (ELSEWHERE,))]
    place = Path(os.path.realpath(output))  # A link may lead into a run, and .. out of one.
    for run in (RunDirectory(folder) for folder in (place, *place.parents)):
        if run.run_file.exists() and not any(run.converted_dir(name) in place.parents for name in FORMATS):
            fix = (f"leave DST out: {run.converted_dir('hf')} and its like are kept for it", ELSEWHERE)
            return [Problem(str(output), f"belongs to the run {run.path}, whose own files these are", fix)]
    states = {folder: _is_held(folder) for folder in leftovers(output)}
    if any(states.values()):
        return [Problem(str(output), "is being written by another convert", ("wait for it", ELSEWHERE))]
    if unknown := [folder for folder, state in states.items() if state is None]:
        what = "is perhaps being written by another convert: this file system has no locks by which to know"
        return [Problem(str(output), what, (f"if none is running: rm -r {shlex.join(map(str, unknown))}", ELSEWHERE))]
    return []


def leftovers(output: Path) -> list[Path]:
    """What conversions to ``output`` have begun and not finished, or not yet."""
    name = re.compile(rf"{re.escape(TEMPORARY_PREFIX + output.name)}-\d+-[0-9a-f]{{8}}")
    folders = output.parent.iterdir() if output.parent.is_dir() else ()
    return sorted(folder for folder in folders if name.fullmatch(folder.name) and folder.is_dir())


def clear_leftovers(output: Path) -> list[Path]:
    """Delete what killed conversions to ``output`` have left; what was deleted."""
    dead = [folder for folder in leftovers(output) if _is_held(folder) is False]
    for folder in dead:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder for folder in dead if not folder.exists()]


@contextmanager
def written_whole(output: Path, num_bytes: int, *, narrower: bool) -> Iterator[Path]:
    """A folder to write ``num_bytes`` of weights to; it becomes ``output`` at the end of the block, and is gone after an error.

    ``narrower`` is whether --dtype bf16 would make the weights smaller.
    Raises:
        UserError: with code 3, where the system refuses.
    """
    temporary = output.parent / f"{TEMPORARY_PREFIX}{output.name}-{os.getpid()}-{secrets.token_hex(4)}"
    created: list[Path] = []
    try:
        with _told(output):
            make_folders(output.parent, created)
            _require_room(output.parent, num_bytes, narrower=narrower)
            temporary.mkdir()
            with _held(temporary):
                yield temporary
                _share(temporary)
                sync_folder(temporary)
                temporary.rename(output)
            sync_folder(output.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        remove_empty(created)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """A lock that ends with this process, by which others know that somebody is at work; on a file, as NFS locks no folders."""
    fd = os.open(folder / LOCKED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with suppress(OSError):  # Some network file systems have no locks.
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_held(folder: Path) -> bool | None:
    """Whether a process holds it; None where the file system cannot tell."""
    try:
        fd = os.open(folder / LOCKED, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


@contextmanager
def _told(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise UserError(Problem(str(output), TAKEN, (ELSEWHERE,))) from error
        room = f"; {free_space(output)}" if error.errno in FULL else ""
        what = f"{error.strerror or error} while writing it{room}"
        raise UserError(Problem(str(output), what, (ELSEWHERE,)), ExitCode.UNFIT_MACHINE) from error


def _share(folder: Path) -> None:
    """Temporary files may be for the owner alone; a team shares its runs."""
    mode = (folder / "config.json").stat().st_mode
    for file in folder.iterdir():
        file.chmod(mode)


def _require_room(folder: Path, num_bytes: int, *, narrower: bool) -> None:
    if shutil.disk_usage(folder).free < num_bytes + SPARE_BYTES:
        needed = f"{size_text(num_bytes)} of weights and {size_text(SPARE_BYTES)} for the files beside them"
        fix = (ELSEWHERE, *(("--dtype bf16 halves the size of fp32",) if narrower else ()))
        raise UserError(Problem(str(folder), f"has no room for {needed}: {free_space(folder)}", fix), ExitCode.UNFIT_MACHINE)
