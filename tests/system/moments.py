"""Killing a run at a chosen moment: seen from outside in its files, made sure of while it stands still, then SIGKILL for every process."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from primus_app.run.checkpoints import complete_checkpoints, unfinished_checkpoints
from tests.system.program import TIMEOUT_S, Program, events, gone, rows

Moment = Callable[[Path], bool]
"""Whether the run whose directory it is given is in this moment now."""

CHECKPOINT_EVERY, EVAL_EVERY, STEPS = 5, 10, 20
SETTINGS = (
    f"training.steps={STEPS}",
    f"checkpoint.every={CHECKPOINT_EVERY}",
    f"training.eval_every={EVAL_EVERY}",
    "training.eval_steps=20",
    "training.global_batch_size=8",
    "optimizer.lr=1e-3",
)
"""Evaluations come at every other checkpoint, after it. The rate is that of test_layouts, for the reason given there."""


def warming_up(run: Path) -> bool:
    """Ranks have been started and no step is done."""
    return (run / "logs" / "pre_trainer" / "rank-0" / "info.log").exists() and not rows(run)


def in_a_step(run: Path) -> bool:
    """The last line is of a step after which nothing but the next step comes; two of them are not in a checkpoint."""
    return _last(run) % CHECKPOINT_EVERY == 2


def writing_a_checkpoint(run: Path) -> bool:
    return bool(unfinished_checkpoints(run / "checkpoints"))


def just_after_a_checkpoint(run: Path) -> bool:
    """Complete, the next step not done, and no evaluation to come."""
    newest = next(iter(complete_checkpoints(run / "checkpoints")), 0)
    return newest > 0 and newest % EVAL_EVERY != 0 and newest == _last(run)


def just_after_one_in_the_background(run: Path) -> bool:
    """Complete while later steps were done."""
    newest = next(iter(complete_checkpoints(run / "checkpoints")), 0)
    return newest % EVAL_EVERY != 0 and newest < _last(run)


def evaluating(run: Path) -> bool:
    """The step's checkpoint is complete and its evaluation, which is all that may come next, is not yet written down."""
    last = rows(run)[-1:]
    step = last[0]["step"] if last and "loss" in last[0] else 0
    return step in (10, 20) and step in complete_checkpoints(run / "checkpoints")


def kill_at(program: Program, moment: Moment) -> None:
    """Kill the launcher, the agent and the ranks in ``moment``; fails the test when the run ends without having been seen in it."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end and program.process.poll() is None:
        if _has_begun(program, moment) and moment(program.run) and _killed(program, moment):
            program.process.communicate()
            return
        time.sleep(0.001)
    pytest.fail(f"never seen in this moment: {moment.__name__}; exit code {program.process.poll()}")


def _killed(program: Program, moment: Moment) -> bool:
    tree = [psutil.Process(program.process.pid), *program.descendants()]
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    if not moment(program.run):
        for process in tree:
            process.resume()
        return False
    for process in tree:
        process.kill()
    assert gone(tree)
    return True


def _has_begun(program: Program, moment: Moment) -> bool:
    """Whether what is seen is this start's doing: until it goes on, the files are as the last one left them."""
    seen = events(program.run)
    starts = [place for place, event in enumerate(seen) if event == "started"]
    if len(starts) == program.starts_before:
        return False
    goes_on = "checkpoint" in seen[: starts[-1]]
    return moment is warming_up or not goes_on or "resumed" in seen[starts[-1] :]


def _last(run: Path) -> int:
    return max((row["step"] for row in rows(run)), default=0)
