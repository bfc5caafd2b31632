"""metrics.jsonl: every step once, whole lines, nothing lost."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from primus_app.config.errors import UserError
from primus_app.run.directory import RunDirectory
from primus_app.run.files import after_newline
from primus_app.run.metrics import MetricsWriter, check_metrics, last_step, read_metrics


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def _write(run: RunDirectory, *steps: int) -> None:
    with MetricsWriter(run) as writer:
        for step in steps:
            writer.write({"step": step, "loss": 5.0 / step})


def _steps(run: RunDirectory) -> list[int]:
    return [row["step"] for row in read_metrics(run)]


def test_rows_come_back_with_full_precision(run: RunDirectory) -> None:
    assert read_metrics(run) == []
    _write(run, 1, 2, 3)
    assert [row["loss"] for row in read_metrics(run)] == [5.0, 2.5, 5.0 / 3]


def test_every_line_is_json_for_other_programs_and_nan_survives(run: RunDirectory) -> None:
    with MetricsWriter(run) as writer:
        writer.write({"step": 1, "loss": math.nan, "grad_norm": -math.inf, "lr": 0.1, "mfu": None})

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    raw = json.loads(run.metrics_file.read_text(), parse_constant=refuse)
    assert raw["loss"] is None
    row = read_metrics(run)[0]
    assert math.isnan(row["loss"])
    assert (row["grad_norm"], row["lr"], row["mfu"]) == (-math.inf, 0.1, None)
    assert "nonfinite" not in row


def test_a_torn_last_line_is_cut_on_opening(run: RunDirectory) -> None:
    _write(run, 1, 2)
    with run.metrics_file.open("a") as file:
        file.write('{"step": 3, "lo')
    assert _steps(run) == [1, 2]
    _write(run, 3)
    assert _steps(run) == [1, 2, 3]
    assert run.metrics_file.read_text().endswith("}\n")


def test_only_a_torn_line_leaves_an_empty_file(run: RunDirectory) -> None:
    run.metrics_file.write_text('{"step": 1')
    with MetricsWriter(run) as writer:
        assert writer.last_step is None
    assert run.metrics_file.read_bytes() == b""


@pytest.mark.parametrize("length", [0, 1, 65535, 65536, 65537, 200_000])
def test_the_last_newline_is_found_at_any_distance(tmp_path: Path, length: int) -> None:
    (tmp_path / "a").write_bytes(b"{}\n" + b"x" * length)
    with (tmp_path / "a").open("rb") as file:
        assert after_newline(file.fileno(), 3 + length) == 3
        assert after_newline(file.fileno(), 2) == 0


def test_a_step_cannot_be_written_twice(run: RunDirectory) -> None:
    _write(run, 1, 2)
    with MetricsWriter(run) as writer:
        assert writer.last_step == 2
        for step in (1, 2):
            with pytest.raises(ValueError, match="already written"):
                writer.write({"step": step, "loss": 1.0})
        writer.write({"step": 2, "eval_loss": 1.0})  # other numbers of the same step may follow
        with pytest.raises(ValueError, match="already written"):
            writer.write({"step": 2, "eval_loss": 1.0})


def test_resuming_from_an_older_checkpoint_keeps_each_step_once_and_loses_nothing(run: RunDirectory, tmp_path: Path) -> None:
    _write(run, 1, 2, 3, 4, 5)
    attempt = tmp_path / "attempts" / "1"
    attempt.mkdir(parents=True)
    with MetricsWriter(run) as writer:
        assert writer.truncate_after(5, attempt) == 0
        assert not list(attempt.iterdir())
        assert writer.truncate_after(3, attempt) == 2
        writer.write({"step": 4, "loss": 9.0})
        assert writer.truncate_after(2, attempt) == 2  # a second restart within the attempt adds to the same file
        writer.write({"step": 3, "loss": 8.0})
    assert [(row["step"], row["loss"]) for row in read_metrics(run)] == [(1, 5.0), (2, 2.5), (3, 8.0)]
    dropped = [json.loads(line) for line in (attempt / "metrics_dropped.jsonl").read_text().splitlines()]
    assert [row["step"] for row in dropped] == [4, 5, 3, 4]


def test_from_the_beginning(run: RunDirectory, tmp_path: Path) -> None:
    _write(run, 1, 2)
    with MetricsWriter(run) as writer:
        assert writer.truncate_after(0, tmp_path) == 2
        assert writer.last_step is None
        writer.write({"step": 1, "loss": 1.0})
    assert _steps(run) == [1]


def test_a_damaged_line_is_named(run: RunDirectory) -> None:
    _write(run, 1)
    run.metrics_file.write_text(run.metrics_file.read_text() + "rubbish\n" + '{"step": 3}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: this is no line of metrics"):
        read_metrics(run)


def test_a_full_disk_stops_with_whole_lines(small_disk: Callable[[int], Path]) -> None:
    run = RunDirectory(small_disk(4096))
    with pytest.raises(UserError, match="No space left") as caught:
        _write(run, *range(1, 1000))
    assert caught.value.code == 3
    assert run.metrics_file.read_text().endswith("}\n")
    assert _steps(run) == list(range(1, len(_steps(run)) + 1))


def test_kill_9_loses_no_written_step(run: RunDirectory) -> None:
    script = f"""
import itertools
from pathlib import Path
from primus_app.run.directory import RunDirectory
from primus_app.run.metrics import MetricsWriter
writer = MetricsWriter(RunDirectory(Path({str(run.path)!r})))
for step in itertools.count(1):
    writer.write({{"step": step, "loss": 1.0 / step}})
    print(step, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 50:
        pass
    process.send_signal(signal.SIGKILL)
    said = [int(line) for line in process.communicate()[0].split()]
    steps = _steps(run)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= max(said, default=50)


def test_every_damaged_line_is_found_before_anything_starts(run: RunDirectory) -> None:
    assert check_metrics(run) == []
    _write(run, 1, 2)
    whole = run.metrics_file.read_bytes()
    run.metrics_file.write_bytes(whole + b'{"step": 3, "lo')  # Torn by a kill: its writer cuts it.
    assert check_metrics(run) == []
    run.metrics_file.write_bytes(b"\x00\x00\n" + whole + b'{"loss": 1}\n\xff\n')
    assert [problem.where.rpartition(", ")[2] for problem in check_metrics(run)] == ["line 1", "line 4", "line 5"]
    run.metrics_file.write_bytes(b"rubbish\n" * 1000)
    assert len(check_metrics(run)) == 5


def test_the_last_step_without_opening_to_write(run: RunDirectory) -> None:
    assert last_step(run) is None
    run.metrics_file.touch()
    assert last_step(run) is None
    _write(run, 1, 2)
    with run.metrics_file.open("a") as file:
        file.write('{"step": 3')
    assert last_step(run) == 2
    assert run.metrics_file.read_text().endswith('{"step": 3')
    run.metrics_file.write_text("rubbish\n")
    assert last_step(run) is None
