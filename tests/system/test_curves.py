"""What a run computes: it learns, its records agree, and neither the layout nor an interruption shows in the curve."""

import json
import math
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.system.program import Start, events, losses, rows, status

pytestmark = pytest.mark.slow

FILES = (
    "config.yaml",
    "overrides.yaml",
    "plan.json",
    "environment.json",
    "run.json",
    "status.json",
    "events.jsonl",
    "metrics.jsonl",
    "native/torchtitan.json",
    "attempts/0/config.yaml",
    "attempts/0/data.json",
    "attempts/0/rank-0/stdout.log",
    "logs/pre_trainer/rank-0/debug.log",
    "logs/pre_trainer/rank-0/info.log",
    "logs/pre_trainer/rank-0/warning.log",
    "logs/pre_trainer/rank-0/error.log",
)


def test_a_run_learns_and_leaves_a_complete_directory(start: Start) -> None:
    program = start("training.steps=40", "training.global_batch_size=16", "training.eval_every=20", "training.eval_steps=1")
    code, output = program.end()
    assert code == 0, output
    run = program.run
    assert [name for name in FILES if not (run / name).exists()] == []
    found = losses(run)
    assert len(found) == 40
    # Seeded weights guess: the first loss is about ln(vocabulary); real text is learnt from there.
    assert found[0] == pytest.approx(math.log(320), abs=0.3)
    assert found[-1] < found[0] - 1.5
    assert [row["step"] for row in rows(run) if "eval_loss" in row] == [20, 40]
    assert status(run)["state"] == "completed"
    assert status(run)["step"] == 40
    assert events(run) == ["data_prepared", "started", "evaluation", "checkpoint", "evaluation", "completed"]
    assert (run / "logs/pre_trainer/rank-0/warning.log").read_text() == "", "a sound run warns of nothing"
    assert str(run) in output
    assert "loss" in output
    assert yaml.safe_load((run / "config.yaml").read_text())["cluster"]["devices_per_node"] == 1
    assert json.loads((run / "native" / "torchtitan.json").read_text())["training"]["steps"] == 40
    _tensorboard_agrees(run)


def _tensorboard_agrees(run: Path) -> None:
    board = EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    for name in ("loss", "lr", "grad_norm", "tokens_per_s_per_device"):
        assert [event.value for event in board.Scalars(name)] == pytest.approx([row[name] for row in rows(run) if name in row])
    assert "mfu" not in board.Tags()["scalars"]  # A CPU has no peak.


def test_a_longer_run_goes_on_where_the_shorter_ended(start: Start) -> None:
    """Bit for bit: 4 steps, then 8 on the same schedule, are the 8 of an unbroken run."""
    unbroken = start("training.steps=8", "optimizer.schedule_steps=4", exp_name="unbroken")
    assert unbroken.end()[0] == 0
    assert start("training.steps=4").end()[0] == 0
    code, output = start("training.steps=4").end()
    assert code == 0
    assert "complete after step 4" in output
    longer = start("training.steps=8")
    code, output = longer.end()
    assert code == 0, output
    assert losses(longer.run) == losses(unbroken.run)
    assert [row["step"] for row in rows(longer.run)] == list(range(1, 9))
    assert "resumed" in events(longer.run)


def test_another_curve_in_the_same_directory_is_refused(start: Start) -> None:
    first = start("training.steps=2")
    assert first.end()[0] == 0
    before = (first.run / "config.yaml").read_text()
    code, output = start("training.steps=2", "optimizer.lr=1e-4", "training.seed=7").end()
    assert code == 2
    assert "optimizer.lr: 0.003 in the run, 0.0001 now" in output
    assert "training.seed: 1234 in the run, 7 now" in output
    assert "exp_name=" in output
    assert (first.run / "config.yaml").read_text() == before


def test_what_a_run_has_reached_is_kept_when_it_saves_no_more(start: Start) -> None:
    """checkpoint.every is a matter of how: without it a run still goes on where it was."""
    assert start("training.steps=4", "checkpoint.every=2").end()[0] == 0
    longer = start("training.steps=8", "checkpoint=none")
    code, output = longer.end()
    assert code == 0, output
    assert "goes on         after step 4" in output
    assert [row["step"] for row in rows(longer.run)] == list(range(1, 9))
    assert not (longer.run / "attempts" / "1" / "metrics_dropped.jsonl").exists()


def test_as_many_checkpoints_as_asked_for_are_kept(start: Start) -> None:
    program = start("training.steps=8", "checkpoint.every=2", "checkpoint.keep=2")
    assert program.end()[0] == 0
    assert sorted(path.name for path in (program.run / "checkpoints").iterdir()) == ["step-6", "step-8"]


def test_the_last_step_is_logged_and_times_are_those_of_the_steps_between(start: Start) -> None:
    program = start("training.steps=25", "logging.every=10", "training.eval_every=9", "training.eval_steps=1")
    code, output = program.end()
    assert code == 0
    logged = [row for row in rows(program.run) if "loss" in row]
    assert [row["step"] for row in logged] == [1, 10, 20, 25]
    assert status(program.run)["step"] == 25
    assert "25/25" in output
    for row, steps in zip(logged, (1, 9, 10, 5), strict=True):
        # tokens/s counts 128 tokens a step, so the two must tell the same time; the 2 and 3 steps after an evaluation too.
        assert row["step_time_s"] * row["tokens_per_s_per_device"] == pytest.approx(128, rel=1e-6), steps
