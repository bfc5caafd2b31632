"""One saved step of a finished or running run, found by the run's folder or by the step's own."""

import re
from dataclasses import dataclass
from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import Config
from primus_app.run.checkpoints import complete_checkpoints
from primus_app.run.directory import RunDirectory
from primus_app.run.record import read_record
from primus_app.run.snapshot import read_config

_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class SavedStep:
    """A complete checkpoint; ``run_id`` and ``step`` name its content, wherever it lies."""

    run: RunDirectory
    run_id: str
    config: Config
    step: int

    @property
    def folder(self) -> Path:
        """Where the engine wrote it."""
        return self.run.checkpoints_dir / f"step-{self.step}"

    @property
    def identity(self) -> str:
        """run:<id>/step-<step>, the same for every copy of the run."""
        return f"run:{self.run_id}/step-{self.step}"


def is_run_or_step(path: Path) -> bool:
    """Whether ``path`` is a run directory, or a step-<n> folder among a run's checkpoints."""
    return run_of(path).run_file.exists()


def run_of(path: Path) -> RunDirectory:
    """The run that ``path``, a run directory or one of its steps, belongs to."""
    is_step = _STEP.fullmatch(path.name) and path.parent.name == "checkpoints"
    return RunDirectory(path.parent.parent if is_step else path)


def find_saved_step(path: Path, step: int | None = None, *, where: str) -> SavedStep:
    """The checkpoint that ``path`` names: a step folder, or of a run directory ``step``, by default the newest.

    Raises:
        UserError: at ``where``, for a folder that is no run, a step that is not there or not complete.
    """
    run = run_of(path)
    record = read_record(run) if run.path.is_dir() else None
    if record is None:
        raise UserError(Problem(where, _no_run(path), ("give a run directory, or checkpoints/step-<n> in one",)))
    complete = complete_checkpoints(run.checkpoints_dir)
    named = _named_step(path, run)
    if named is not None and step is not None and named != step:
        raise UserError(Problem(where, f"{path.name} is given, and step {step} too", (f"leave one out, or give {run.path}",)))
    wanted = named if named is not None else step
    if not complete:
        what = f"{run.path} has no complete checkpoint"
        raise UserError(Problem(where, what, ("a run saves one every checkpoint.every steps and one at its end",)))
    found = complete[0] if wanted is None else wanted
    if found not in complete:
        what = f"step {found} of {run.path} is not there, or not complete"
        raise UserError(Problem(where, what, (f"complete: {', '.join(f'step {number}' for number in complete)}",)))
    return SavedStep(run, record.id, read_config(run.config_file), found)


def _named_step(path: Path, run: RunDirectory) -> int | None:
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match and path != run.path else None


def _no_run(path: Path) -> str:
    if not path.exists():
        return f"no such folder: {path}"
    return f"{path} is a file" if path.is_file() else f"{path} is no run of this program: it has no run.json"
