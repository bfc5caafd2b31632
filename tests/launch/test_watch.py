"""The terminal's view: every line of metrics once, also when the file shrinks."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from primus_app.launch.watch import describe, watch
from primus_app.run.directory import RunDirectory
from primus_app.run.events import Event, append_event


def line(step: int, **values: Any) -> str:
    return json.dumps({"step": step, **values}) + "\n"


def test_what_is_written_while_it_looks_is_shown_and_a_torn_line_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(tmp_path)
    run.metrics_file.write_text(line(1, loss=9.0))
    steps = iter([line(2, loss=5.0, memory_gib=0.5), line(3, eval_loss=4.0)[:-8], line(3, eval_loss=4.0)[-8:], ""])

    def alive() -> bool:
        text = next(steps)
        with run.metrics_file.open("a") as file:
            file.write(text)
        return bool(text)

    watch(run, 0, 10, alive)
    shown = capsys.readouterr().out.splitlines()
    assert [text.split()[1] for text in shown] == ["2/10", "3/10"]
    assert "loss 5.0000  0.50 GiB" in shown[0]
    assert "evaluation loss 4.0000" in shown[1]


def test_steps_computed_again_are_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(tmp_path)
    run.metrics_file.write_text(line(1) + line(2) + line(3))
    steps = iter(["shrink", "grow", ""])

    def alive() -> bool:
        what = next(steps)
        if what == "shrink":
            run.metrics_file.write_text(line(1))
        elif what == "grow":
            run.metrics_file.write_text(line(1) + line(2, eval_loss=1.0))
        return bool(what)

    watch(run, 1, 3, alive)
    assert "2/3" in capsys.readouterr().out


def test_the_bar_of_a_continued_run_begins_at_its_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path)
    for step in (200, 300):
        dcp.save({"weight": torch.ones(2)}, checkpoint_id=str(run.checkpoints_dir / f"step-{step}"), no_dist=True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    watch(run, 1, 600, lambda: False)
    assert "300/600" in capsys.readouterr().out
    (run.checkpoints_dir / "step-300/.metadata").write_bytes(b"junk")
    watch(run, 1, 600, lambda: False)
    assert "200/600" in capsys.readouterr().out


def test_damage_that_only_the_ranks_have_seen_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(tmp_path)
    dcp.save({"weight": torch.ones(2)}, checkpoint_id=str(run.checkpoints_dir / "step-300"), no_dist=True)
    steps = iter([line(201, loss=1.0), line(202, loss=1.0), ""])

    def alive() -> bool:
        text = next(steps)
        append_event(run, Event.RESUMED, attempt=1, step=200)
        with run.metrics_file.open("a") as file:
            file.write(text)
        return bool(text)

    watch(run, 1, 600, alive)
    said = capsys.readouterr().err
    assert said.count("note: checkpoint step-300 is damaged: training goes on after step 200;") == 1


def test_unknown_numbers_are_left_out() -> None:
    row = {"step": 1, "loss": 2.5, "mfu": None, "tflops_per_device": 0.01234}
    assert describe(row) == "loss 2.5000  0.0123 TFLOP/s"
    assert "MFU 41.2%" in describe({**row, "mfu": 0.412})
