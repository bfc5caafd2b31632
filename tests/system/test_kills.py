"""A run that is killed at any moment and started again by the same command has the records of a run that nobody disturbed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.system.moments import (
    CHECKPOINT_EVERY,
    SETTINGS,
    STEPS,
    Moment,
    evaluating,
    in_a_step,
    just_after_a_checkpoint,
    just_after_one_in_the_background,
    kill_at,
    warming_up,
    writing_a_checkpoint,
)
from tests.system.program import Program, Start, events, rows, status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FSDP2 = ("parallel=fsdp", "cluster.devices_per_node=2")
TP2 = ("parallel=tp2", "cluster.devices_per_node=2")
PP2 = ("parallel=pp2", "training.micro_batch_size=2", "cluster.devices_per_node=2")
EP2 = ("parallel=ep2", "cluster.devices_per_node=2")
EXPERTS = ("model=qwen3_moe_tiny",)
ASYNC = ("checkpoint.async=true",)
MEGATRON = ("backend=megatron",)

Curve = dict[str, list[tuple[int, float]]]
"""By column: the step and the value of each line that has it."""

CURVES: dict[tuple[str, ...], Curve] = {}
"""Unbroken runs, each made once."""


@pytest.fixture
def unbroken(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Curve]:
    def _unbroken(*overrides: str) -> Curve:
        if overrides not in CURVES:
            program = start(*SETTINGS, *overrides, workspace=tmp_path_factory.mktemp("unbroken"))
            code, output = program.end()
            assert code == 0, output
            CURVES[overrides] = curve(program.run)
        return CURVES[overrides]

    return _unbroken


def curve(run: Path) -> Curve:
    found: list[dict[str, Any]] = rows(run)
    return {name: [(row["step"], row[name]) for row in found if name in row] for name in ("loss", "grad_norm", "lr", "tokens", "eval_loss")}


def agree(found: Curve, expected: Curve, tolerance: float) -> None:
    """The same steps, each once and in order, and the same values; a tolerance of 0 is bit for bit."""
    assert [step for step, _ in found["loss"]] == list(range(1, STEPS + 1))
    for name, points in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        # A norm feels rounding more than a mean does.
        allowed = tolerance * (10 if name == "grad_norm" else 1)
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=allowed, abs=0), name


def killed_again_and_again(start: Start, *chain: tuple[Sequence[str], Moment]) -> Program:
    """One start after the other with these overrides, each killed in its moment."""
    for overrides, moment in chain:
        program = start(*SETTINGS, *overrides)
        kill_at(program, moment)
    return program


def in_order(run: Path, attempts: int) -> None:
    """Nothing that a kill left is there any more, and the records agree with each other."""
    assert status(run)["state"] == "completed"
    assert status(run)["step"] == STEPS
    assert sorted(path.name for path in (run / "attempts").iterdir()) == [str(number) for number in range(attempts)]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [f"step-{STEPS - CHECKPOINT_EVERY}", f"step-{STEPS}"]
    assert [path for path in run.rglob(".tmp-*") if path.is_file()] == []
    assert "unreadable" not in events(run)
    assert events(run)[-1] == "completed"
    board = EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    for name, points in curve(run).items():
        shown = board.Scalars(name)
        assert [event.step for event in shown] == [step for step, _ in points], name
        assert [event.value for event in shown] == pytest.approx([value for _, value in points]), name


AT_FIVE_MOMENTS = (warming_up, in_a_step, writing_a_checkpoint, just_after_a_checkpoint, evaluating)
IN_THE_BACKGROUND = (warming_up, in_a_step, writing_a_checkpoint, just_after_one_in_the_background, evaluating)
"""A moment may be missed, and come again later: the last can be met at the end of the run too."""


@pytest.mark.parametrize(
    ("overrides", "moments", "tolerance"),
    [
        pytest.param((), AT_FIVE_MOMENTS, 0, id="one process"),
        pytest.param(ASYNC, IN_THE_BACKGROUND, 0, id="one process, async"),
        pytest.param(FSDP2, AT_FIVE_MOMENTS, 1e-6, id="fsdp2"),
        pytest.param((*FSDP2, *ASYNC), IN_THE_BACKGROUND, 1e-6, id="fsdp2, async"),
        pytest.param(MEGATRON, AT_FIVE_MOMENTS, 0, id="megatron, one process"),
        pytest.param((*MEGATRON, *FSDP2, *ASYNC), IN_THE_BACKGROUND, 1e-6, id="megatron, distributed optimizer, async"),
    ],
)
def test_five_kills_do_not_show(
    start: Start, unbroken: Callable[..., Curve], overrides: tuple[str, ...], moments: Sequence[Moment], tolerance: float
) -> None:
    expected = unbroken(*(word for word in overrides if word not in ASYNC))
    killed_again_and_again(start, *((overrides, moment) for moment in moments))
    program = start(*SETTINGS, *overrides)
    code, output = program.end()
    assert code == 0, output
    agree(curve(program.run), expected, tolerance)
    in_order(program.run, len(moments) + 1)
    checkpoints = [json.loads(line) for line in (program.run / "events.jsonl").read_text().splitlines()]
    deleted = [event["step"] for event in checkpoints if event["event"] == "checkpoint_deleted"]
    assert deleted != []
    assert all(step % 5 == 0 for step in deleted)


def test_kills_and_changes_of_layout_do_not_show(start: Start, unbroken: Callable[..., Curve]) -> None:
    """With checkpoints in the background: fsdp2, then pp2, which has an evaluation to make up for, then tp2, then one process."""
    killed_again_and_again(
        start,
        ((*FSDP2, *ASYNC), evaluating),
        ((*PP2, *ASYNC), writing_a_checkpoint),
        ((*TP2, *ASYNC), in_a_step),
    )
    program = start(*SETTINGS)
    code, output = program.end()
    assert code == 0, output
    agree(curve(program.run), unbroken(), 1e-5)
    in_order(program.run, 4)


def test_kills_and_changes_of_engine_do_not_show(start: Start, unbroken: Callable[..., Curve]) -> None:
    """fsdp2 on TorchTitan, then pp2 on Megatron, then one process on TorchTitan."""
    killed_again_and_again(start, (FSDP2, in_a_step), ((*MEGATRON, *PP2), just_after_a_checkpoint))
    program = start(*SETTINGS)
    code, output = program.end()
    assert code == 0, output
    agree(curve(program.run), unbroken(), 1e-5)
    in_order(program.run, 3)


def test_experts_go_on_with_another_layout(start: Start, unbroken: Callable[..., Curve]) -> None:
    killed_again_and_again(start, ((*EXPERTS, *EP2), just_after_a_checkpoint))
    program = start(*SETTINGS, *EXPERTS)
    code, output = program.end()
    assert code == 0, output
    agree(curve(program.run), unbroken(*EXPERTS), 1e-4)
    in_order(program.run, 2)
