"""Which checkpoints of a run are complete, by what their writers leave last; and clearing away those that are not."""

import re
import shutil
from pathlib import Path

from primus_app.run.directory import RunDirectory

MARKERS = (".metadata",)
"""torch's distributed checkpoints write this file once all others are there."""


def newest_checkpoint(run: RunDirectory) -> int | None:
    """The step of the newest complete checkpoint; None where there is none."""
    return next(iter(complete_checkpoints(run.checkpoints_dir)), None)


def complete_checkpoints(folder: Path) -> list[int]:
    """The steps of all complete checkpoints in ``folder``, newest first; empty where there is no such folder."""
    return sorted((step for step, path in _by_step(folder).items() if _is_complete(path)), reverse=True)


def unfinished_checkpoints(folder: Path) -> list[int]:
    """The steps whose writer, or whose removal, was ended half-way; oldest first."""
    return sorted(step for step, path in _by_step(folder).items() if not _is_complete(path))


def remove_unfinished(run: RunDirectory) -> list[int]:
    """Delete the unfinished checkpoints of a run that nobody is training; the steps of those that are gone.

    They can never be loaded, and take up space; one that the file system does not let go of is merely passed over.
    """
    steps = unfinished_checkpoints(run.checkpoints_dir)
    for step in steps:
        shutil.rmtree(run.checkpoints_dir / f"step-{step}", ignore_errors=True)
    left = unfinished_checkpoints(run.checkpoints_dir)
    return [step for step in steps if step not in left]


def surplus_checkpoints(folder: Path, keep: int, newest: int) -> list[Path]:
    """The complete checkpoints to delete so that ``keep`` stay (0: all), oldest first.

    ``newest`` is the step whose state is known to be good: a later one that is still there was found damaged, so it neither
    counts nor goes.
    """
    good = [step for step in complete_checkpoints(folder) if step <= newest]
    return [folder / f"step-{step}" for step in reversed(good[keep:])] if keep else []


def unmark(checkpoint: Path) -> None:
    """Make a checkpoint incomplete before its other files change, so that a kill in between leaves nothing that looks whole."""
    for marker in MARKERS:
        (checkpoint / marker).unlink(missing_ok=True)


def _by_step(folder: Path) -> dict[int, Path]:
    paths = folder.iterdir() if folder.is_dir() else ()
    return {int(match[1]): path for path in paths if (match := re.fullmatch(r"step-(\d+)", path.name)) and path.is_dir()}


def _is_complete(checkpoint: Path) -> bool:
    return any((checkpoint / marker).exists() for marker in MARKERS)
