"""Which checkpoints of a run are complete, by what their writers leave last."""

import re
from pathlib import Path

from primus_app.run.directory import RunDirectory

MARKERS = (".metadata",)
"""torch's distributed checkpoints write this file once all others are there."""


def newest_checkpoint(run: RunDirectory) -> int | None:
    """The step of the newest complete checkpoint; None where there is none."""
    return next(iter(complete_checkpoints(run.checkpoints_dir)), None)


def complete_checkpoints(folder: Path) -> list[int]:
    """The steps of all complete checkpoints in ``folder``, newest first; empty where there is no such folder."""
    paths = [path for path in folder.iterdir() if any((path / marker).exists() for marker in MARKERS)] if folder.is_dir() else []
    return sorted((int(match[1]) for path in paths if (match := re.fullmatch(r"step-(\d+)", path.name))), reverse=True)
