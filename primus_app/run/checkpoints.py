"""Which checkpoints of a run are complete, by what their writers leave last."""

import re

from primus_app.run.directory import RunDirectory

MARKERS = (".metadata",)
"""torch's distributed checkpoints write this file once all others are there."""


def newest_checkpoint(run: RunDirectory) -> int | None:
    """The step of the newest complete checkpoint; None where there is none."""
    folder = run.checkpoints_dir
    names = [path for path in folder.iterdir() if any((path / marker).exists() for marker in MARKERS)] if folder.is_dir() else []
    steps = [int(match[1]) for path in names if (match := re.fullmatch(r"step-(\d+)", path.name))]
    return max(steps, default=None)
