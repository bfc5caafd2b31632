"""The door of a run directory: new, continued, finished, or refused with the reason."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import Config
from primus_app.run.clock import utc_now
from primus_app.run.directory import Attempt, RunDirectory, new_attempt, run_directory, unique_name
from primus_app.run.environment import describe_environment
from primus_app.run.files import explain_os_errors, read_text, write_atomic
from primus_app.run.lock import RunLock, acquire_lock, remove_empty
from primus_app.run.metrics import check_metrics
from primus_app.run.record import RunRecord, raise_steps, read_record
from primus_app.run.snapshot import is_leftover, remove, remove_leftovers, remove_snapshot, write_attempt_snapshot, write_snapshot
from primus_app.run.status import State, read_status, write_status
from primus_app.run.what import Difference, fix_schedule, refused, total_steps, what_of

Kind = Literal["new", "continue", "finished"]
TRIES = 100
LENGTH = ("training.steps", "training.tokens")


@dataclass(frozen=True)
class OpenedRun:
    """A run that this process holds. ``config`` has exp_name and schedule_steps filled; ``raised_from`` is the old length if it grew."""

    run: RunDirectory
    config: Config
    kind: Kind
    lock: RunLock
    raised_from: int | None = None
    before: Mapping[Path, str] = field(default_factory=dict)
    """What status.json and run.json were before this process changed them."""

    def take_back(self) -> None:
        """Leave the run's state and length as they were: this start has trained nothing."""
        for path, text in self.before.items():
            write_atomic(path, text)

    def discard(self) -> None:
        """Take back a new run that never trained, as if it had not been asked for."""
        assert self.kind == "new", "only a run that this process has just made may be removed"
        for name in os.listdir(self.run.path):
            if name != self.run.lock_file.name:
                remove(self.run.path / name)
        self.lock.undo()

    def abandon(self) -> None:
        """Let go of the run; of a new one without a snapshot nothing stays."""
        if self.kind == "new" and not self.run.run_file.exists():
            self.lock.undo()
        else:
            self.lock.release()


def open_run(config: Config) -> OpenedRun:
    """Take the run directory of ``config`` for this process; the caller releases ``lock``.

    A free place is a new run. The same *what* continues, or is finished when it has completed and is not made longer.
    UserError: another *what* (every differing key), a folder that is no run (untouched), or a run that is held (code 2);
    a place that cannot be written (code 3).
    """
    if config.exp_name is None:
        return _open_new_name(config)
    run = run_directory(config)
    _refuse_inside_run(run, config)
    _refuse_foreign(run)
    lock = acquire_lock(run)
    try:
        record = read_record(run)
        if record is not None:
            return _open_existing(run, config, lock, record)
        _refuse_foreign(run)
        with explain_os_errors(run.path, "clearing up after an interrupted start"):
            remove_leftovers(run.path)
        return OpenedRun(run, fix_schedule(config), "new", lock)
    except BaseException:
        lock.undo() if run.path in lock.created else lock.release()
        raise


def record_start(
    opened: OpenedRun, overrides: Sequence[str], plan: dict[str, Any], command: Sequence[str], environment: dict[str, Any] | None = None
) -> Attempt:
    """Write the snapshot of a new run, then the next attempt's. When that fails, nothing of either stays and the run is let go."""
    described = describe_environment(command=command) if environment is None else environment
    request = (opened.config, overrides, plan, command, described)
    attempt = None
    try:
        if opened.kind == "new":
            write_snapshot(opened.run, *request)
        attempt = new_attempt(opened.run)
        write_attempt_snapshot(attempt, *request)
    except BaseException:
        remove_empty([opened.run.attempts_dir, *([attempt.dir] if attempt else [])])
        if opened.kind == "new":
            remove_snapshot(opened.run)
        opened.abandon()
        raise
    return attempt


def _open_new_name(config: Config) -> OpenedRun:
    for _ in range(TRIES):
        named = config.model_copy(update={"exp_name": unique_name(config.model.name)})
        run = run_directory(named)
        lock = acquire_lock(run)
        if run.path in lock.created:
            return OpenedRun(run, fix_schedule(named), "new", lock)
        lock.release()
    raise UserError(Problem("exp_name", f"{TRIES} names in a row were taken", ("choose one with exp_name=<name>",)))


def _open_existing(run: RunDirectory, config: Config, lock: RunLock, record: RunRecord) -> OpenedRun:
    config = fix_schedule(config, record.schedule_steps)
    what = what_of(config)
    if found := refused(record.what, what):
        raise UserError(_refusals(run, record, found))
    old, new = total_steps(record.what), total_steps(what)
    status = read_status(run)
    completed = status is not None and status.state is State.COMPLETED
    kind: Kind = "finished" if completed and new == old else "continue"
    if kind == "continue" and (damaged := check_metrics(run)):
        raise UserError(damaged)
    before = {path: text for path in (run.status_file, run.run_file) if (text := read_text(path)) is not None}
    if new > old:
        # First the state, then the length: killed in between, the run is merely looked at once more.
        if status is not None and completed:
            write_status(run, replace(status, state=State.CREATED, exit_code=None, time=utc_now()))
        raise_steps(run, record, what)
    return OpenedRun(run, config, kind, lock, old if new > old else None, before)


def _refusals(run: RunDirectory, record: RunRecord, found: list[Difference]) -> list[Problem]:
    """One problem for each key, then what to do about all of them."""
    problems = [Problem(item.key, f"{item.old!r} in the run, {item.new!r} now", _fix(item, record)) for item in found]
    if all(item.key in LENGTH for item in found):
        return problems
    keys = "this key defines" if len(found) == 1 else f"these {len(found)} keys define"
    what = f"holds another run: {keys} the loss curve, which may not change within one run"
    fix = ("start another run with exp_name=<another name>", f"or continue this one with the values in {run.config_file}")
    return [*problems, Problem(str(run.path), what, fix)]


def _fix(item: Difference, record: RunRecord) -> tuple[str, ...]:
    if item.key in LENGTH:
        longer = f"a run can be made longer than its {total_steps(record.what)} steps, never shorter"
        return (longer, "or start another run with exp_name=<another name>")
    if item.key == "checkpoint.load_digest":
        return ("the weights that a run starts from may not change, nor be left out: checkpoint.load as it was names them",)
    if item.key == "optimizer.schedule_steps":
        return ("the length of the schedule is fixed at the first start; training.steps alone makes a run longer",)
    return ()


def _refuse_inside_run(run: RunDirectory, config: Config) -> None:
    """UserError when a folder above belongs to another run: exp_name=a/b inside the run a."""
    num_parts = len(Path(config.work_group, config.user_name, config.exp_name or "").parts)
    for folder in list(run.path.parents)[: num_parts - 1]:
        if RunDirectory(folder).run_file.exists():
            what = f"this place lies inside another run ({folder})"
            raise UserError(Problem(str(run.path), what, ("choose another name: exp_name=<another name>",)))


def _refuse_foreign(run: RunDirectory) -> None:
    """UserError when the place holds something, but no run of ours; nothing is touched."""
    with explain_os_errors(run.path, "looking at the run's folder"):
        names = os.listdir(run.path) if run.path.is_dir() else []
    foreign = sorted(name for name in names if not is_leftover(name, names))
    # The listing first: a run that another process is just recording has its run.json last.
    if not foreign or run.run_file.exists():
        return
    some = ", ".join(foreign[:5]) + (" …" if len(foreign) > 5 else "")
    what = f"this folder is not empty and holds no run of this program (it holds {some})"
    raise UserError(Problem(str(run.path), what, ("choose another place with exp_name=<another name> or workspace=<folder>",)))
