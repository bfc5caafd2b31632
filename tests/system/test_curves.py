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
    assert events(run) == ["data_prepared", "started", "checkpoint", "completed"]
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


@pytest.mark.parametrize("model", ["llama_tiny", "qwen3_moe_tiny"])
@pytest.mark.parametrize("layout", ["fsdp", "dp"])
def test_two_ranks_give_the_curve_of_one(start: Start, model: str, layout: str) -> None:
    """float32: relative 1e-5 over 20 steps for a dense model, 1e-4 with experts."""
    common = (f"model={model}", "training.steps=20", "checkpoint=none", "logging.tensorboard=false")
    one = start(*common, exp_name="one")
    assert one.end()[0] == 0
    two = start(*common, f"parallel={layout}", "cluster.devices_per_node=2", exp_name="two")
    code, output = two.end()
    assert code == 0, output
    assert losses(two.run) == pytest.approx(losses(one.run), rel=1e-4 if "moe" in model else 1e-5)


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
