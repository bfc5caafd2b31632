"""The verb tune-hardware at the door."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus_app.cli.completion import candidates
from primus_app.config.schema import Config
from primus_app.run.events import append_event
from primus_app.run.metrics import MetricsWriter
from primus_app.run.open import open_run, record_start
from primus_app.run.status import State, Status, write_status

Door = Callable[..., Any]
Finish = Callable[..., Path]


@pytest.fixture
def finish(tmp_path: Path) -> Finish:
    """A run directory as a run of so many steps leaves it, each of ``seconds``."""
    from primus_app.config.compose import Request
    from primus_app.config.load import load_config

    def make(name: str, seconds: list[float], *overrides: str, state: State = State.COMPLETED) -> Path:
        typed = (*overrides, f"workspace={tmp_path}", f"exp_name={name}", "cluster.devices_per_node=1", "cluster.nodes=1")
        config: Config = load_config(Request(typed), hardware="cpu")
        opened = open_run(config)
        record_start(opened, typed, {}, ["primus"], {})
        append_event(opened.run, "started", attempt=0)
        with MetricsWriter(opened.run) as metrics:
            for step, took in enumerate(seconds, 1):
                metrics.write({"step": step, "loss": 1.0, "step_time_s": took})
        write_status(opened.run, Status(state, 0))
        opened.lock.release()
        return opened.run.path

    return make


def test_a_file_that_the_program_takes(door: Door, finish: Finish, tmp_path: Path) -> None:
    """The first steps, a minute each, are left out."""
    runs = [
        str(finish("small", [60.0] * 5 + [0.5] * 9)),
        str(finish("wide", [60.0] * 5 + [2.0] * 9, "model.hidden_size=512", "model.head_dim=128")),
    ]
    (tmp_path / "mine" / "hardware").mkdir(parents=True)
    file = tmp_path / "mine" / "hardware" / "laptop.yaml"
    answer = door("tune-hardware", *runs, "--output", str(file))
    assert answer.code == 0
    assert "efficiency.gemm" in answer.out
    assert "hardware=laptop --config-dir" in answer.out
    assert "# Assumed, as no data sheet says it" in file.read_text()
    plan = json.loads(door("plan", "--json", "hardware=laptop", "--config-dir", str(tmp_path / "mine")).out)
    assert plan["time"]["step_s"]["total"] == pytest.approx(0.5, rel=0.05)
    assert door("tune-hardware", *runs, "--output", str(file)).problems() == [
        [f"--output: {file} exists already, and nothing is overwritten", "  choose another name"]
    ]


def test_without_a_file_the_overrides_are_printed_and_work(door: Door, finish: Finish) -> None:
    answer = door("tune-hardware", str(finish("one", [0.5] * 14)))
    overrides = answer.out.rpartition("as overrides: ")[2].split()
    assert "hardware.efficiency.gemm=" in " ".join(overrides)
    assert "Predicted time of a step" in door("plan", "hardware=cpu", *overrides).out


def test_runs_that_tell_nothing_are_refused_by_name(door: Door, finish: Finish, tmp_path: Path) -> None:
    short, failed = finish("short", [0.5] * 7), finish("failed", [0.5] * 20, state=State.FAILED)
    (empty := tmp_path / "empty").mkdir()
    answer = door("tune-hardware", str(short), str(failed), str(tmp_path / "no"), str(empty))
    assert answer.code == 2
    assert [problem[0].rpartition("/")[2] for problem in answer.problems()] == [
        "short: has 2 steps to measure after 5 of warming up",
        "failed: has not completed: it is failed",
        "no: no such folder",
        "empty: is no run of this program",
    ]


def test_a_folder_stands_for_its_runs_and_each_counts_once(door: Door, finish: Finish, tmp_path: Path) -> None:
    one = finish("one", [0.5] * 14)
    finish("other", [0.5] * 14, "training.seq_len=128")
    once = door("tune-hardware", str(tmp_path)).out
    assert [line.split()[0] for line in once.split("\n") if "0.5 s " in line] == ["one", "other"]
    assert door("tune-hardware", str(one), str(one), str(tmp_path)).out == once


def test_a_fraction_that_would_be_above_one_says_so(door: Door, finish: Finish) -> None:
    """One matrix of 8192 x 8192 on 4096 tokens takes 1.6e12 FLOPs, and an MI300X does 1.3e12 a millisecond in bf16."""
    run = finish("fast", [0.001] * 14, "hardware=mi300x", "model.hidden_size=8192", "model.head_dim=2048", "training.seq_len=4096")
    assert "and no fraction is above 1" in " ".join(door("tune-hardware", str(run)).out.split())


def test_of_different_hardware_one_at_a_time(door: Door, finish: Finish) -> None:
    one, other = finish("one", [0.5] * 14), finish("other", [0.5] * 14, "hardware=mi300x")
    assert "these runs are of different hardware: cpu, mi300x" in door("tune-hardware", str(one), str(other)).err


def test_mistakes_in_its_arguments(door: Door) -> None:
    assert "needs the directories of finished runs" in door("tune-hardware").err
    assert "tune-hardware RUN…" in door("tune-hardware", "run", "--outptu", "x").err
    assert "tune-hardware" in candidates("primus tune-h")
