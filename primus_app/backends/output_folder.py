"""The folder that a conversion writes: whether it may be written, and writing it so that it is there as a whole or not at all."""

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.run.directory import RunDirectory
from primus_app.run.files import FULL, TEMPORARY_PREFIX, free_space, size_text, sync_folder

FORMATS = ("hf", "torchtitan", "megatron")
ELSEWHERE = "choose another place: convert SRC DST --to …"
SPARE_BYTES = 16 << 20
"""Room for headers, configuration and tokenizer beside the weights."""

TAKEN = "exists already, and nothing is overwritten"


def check_output(output: Path) -> list[Problem]:
    """What is in the way of ``output``: nothing is ever overwritten, no run's own files are mixed with others, one writes at a time."""
    above = next((folder for folder in output.parents if folder.exists() or folder.is_symlink()), output)
    if above != output and not above.is_dir():
        return [Problem(str(output), f"cannot be made: {above} is a file", (ELSEWHERE,))]
    is_empty = output.is_dir() and not any(output.iterdir())
    if (output.exists() or output.is_symlink()) and not is_empty:
        return [Problem(str(output), TAKEN, (ELSEWHERE,))]
    for run in (RunDirectory(folder) for folder in (output, *output.parents)):
        if run.run_file.exists() and not any(run.converted_dir(name) in output.parents for name in FORMATS):
            fix = (f"leave DST out: {run.converted_dir('hf')} and its like are kept for it", ELSEWHERE)
            return [Problem(str(output), f"belongs to the run {run.path}, whose own files these are", fix)]
    if any(_is_held(folder) for folder in leftovers(output)):
        return [Problem(str(output), "is being written by another convert", ("wait for it", ELSEWHERE))]
    return []


def leftovers(output: Path) -> list[Path]:
    """What conversions to ``output`` have begun and not finished, or not yet."""
    pattern = f"{TEMPORARY_PREFIX}{output.name}-"
    folders = output.parent.iterdir() if output.parent.is_dir() else ()
    return sorted(folder for folder in folders if folder.name.startswith(pattern) and folder.is_dir())


def clear_leftovers(output: Path) -> list[Path]:
    """Delete what killed conversions to ``output`` have left; what was deleted."""
    dead = [folder for folder in leftovers(output) if not _is_held(folder)]
    for folder in dead:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder for folder in dead if not folder.exists()]


@contextmanager
def written_whole(output: Path, num_bytes: int, *, has_wide: bool) -> Iterator[Path]:
    """A folder to write ``num_bytes`` of weights to; it becomes ``output`` at the end of the block, and is gone after an error.

    ``has_wide`` is whether the weights would be smaller in bfloat16.
    Raises:
        UserError: with code 3, where the system refuses.
    """
    temporary = output.parent / f"{TEMPORARY_PREFIX}{output.name}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with _told(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            _require_room(output.parent, num_bytes, has_wide=has_wide)
            temporary.mkdir()
            with _held(temporary):
                yield temporary
                _share(temporary)
                sync_folder(temporary)
                temporary.rename(output)
            sync_folder(output.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """A lock on the folder that ends with this process, by which others know that somebody is at work."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # Some network file systems lock no folders.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def _is_held(folder: Path) -> bool:
    """Whether a process holds it; where the file system cannot tell, somebody might."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
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


def _require_room(folder: Path, num_bytes: int, *, has_wide: bool) -> None:
    if shutil.disk_usage(folder).free < num_bytes + SPARE_BYTES:
        needed = f"{size_text(num_bytes)} of weights and {size_text(SPARE_BYTES)} for the files beside them"
        fix = (ELSEWHERE, *(("--dtype bf16 halves the size of fp32",) if has_wide else ()))
        raise UserError(Problem(str(folder), f"has no room for {needed}: {free_space(folder)}", fix), ExitCode.UNFIT_MACHINE)
