"""The curve of a run: one line of JSON per logged step, each step once, whole lines only."""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from primus_app.config.errors import Problem, UserError
from primus_app.run.clock import utc_now
from primus_app.run.directory import RunDirectory
from primus_app.run.files import after_newline, append_all, complete_lines, encode, explain_os_errors, json_line, write_atomic

STAMP = {"step", "time"}
DROPPED = "metrics_dropped.jsonl"
"""The file in an attempt's folder with the lines that this attempt computes again."""
DAMAGED_SHOWN = 5


class MetricsWriter:
    """The only writer of a run's metrics.jsonl (rank 0 has it). Opening cuts a line that a kill has torn."""

    def __init__(self, run: RunDirectory) -> None:
        self.path = run.metrics_file
        self._fd = self._open()

    def _open(self) -> int:
        with explain_os_errors(self.path, "opening the metrics"):
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            end = after_newline(fd, os.fstat(fd).st_size)
            os.ftruncate(fd, end)
            last = os.pread(fd, end, after_newline(fd, end - 1)) if end else b""
        row = _parse(self.path, last.decode("utf-8", "backslashreplace"), "last") if last else {}
        self.last_step: int | None = row.get("step")
        self._last_keys = row.keys() - STAMP
        return fd

    def write(self, row: Mapping[str, Any]) -> None:
        """Append ``row`` at once; a kill of the process cannot lose it. Numbers that are not finite survive reading back.

        ``row["step"]`` counts from 1 and never falls: to compute steps again, truncate_after() first. A second row for a step (an
        evaluation) may only hold other numbers.
        """
        step, keys = row["step"], row.keys() - STAMP
        if self.last_step is not None and (step < self.last_step or (step == self.last_step and keys & self._last_keys)):
            raise ValueError(f"step {step} is already written (the last is {self.last_step}); truncate_after comes first")
        line = {"step": step, "time": utc_now(), **_finite(row)}
        with explain_os_errors(self.path, "writing the metrics of a step"):
            append_all(self._fd, encode(json_line(line)))
        self._last_keys = keys | (self._last_keys if step == self.last_step else set())
        self.last_step = step

    def has(self, step: int, key: str) -> bool:
        """Whether the last line is of ``step`` and has ``key``."""
        return self.last_step == step and key in self._last_keys

    def truncate_after(self, step: int, attempt_dir: Path) -> int:
        """Take the lines after ``step`` out, into attempt_dir/metrics_dropped.jsonl; the number of lines taken.

        For an attempt that resumes from a checkpoint older than the last line. Atomic: a kill leaves the file as it was or as it should be.
        """
        if self.last_step is None or self.last_step <= step:
            return 0
        lines = [(line, _parse(self.path, line, number)["step"]) for number, line in enumerate(complete_lines(self.path), 1) if line]
        dropped = [line for line, at in lines if at > step]
        with explain_os_errors(self.path, "taking out steps that are computed again"):
            _append_text(attempt_dir / DROPPED, dropped)
            write_atomic(self.path, "".join(line + "\n" for line, at in lines if at <= step))
        self.close()
        self._fd = self._open()
        return len(dropped)

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_metrics(run: RunDirectory) -> list[dict[str, Any]]:
    """All logged steps in order, with NaN and infinities as floats again; a torn last line is left out."""
    return [_parse(run.metrics_file, line, number) for number, line in enumerate(complete_lines(run.metrics_file), 1) if line]


def check_metrics(run: RunDirectory) -> list[Problem]:
    """What in metrics.jsonl something else has damaged, one problem a line, at most DAMAGED_SHOWN: before anything starts."""
    problems: list[Problem] = []
    with explain_os_errors(run.metrics_file, "reading the metrics"), suppress(FileNotFoundError), run.metrics_file.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line[:-1] and line.endswith(b"\n"):  # A torn last line is cut by the writer.
                try:
                    _parse(run.metrics_file, line.decode("utf-8", "backslashreplace"), number)
                except UserError as error:
                    problems += error.problems
                    if len(problems) == DAMAGED_SHOWN:
                        break
    return problems


def last_step(run: RunDirectory) -> int | None:
    """The step of the last complete line, None where there is none or it is damaged; for an account that must not fail."""
    with suppress(OSError, UserError), run.metrics_file.open("rb") as file:
        end = after_newline(file.fileno(), os.fstat(file.fileno()).st_size)
        start = after_newline(file.fileno(), end - 1)
        line = os.pread(file.fileno(), end - start, start)
        return int(_parse(run.metrics_file, line.decode("utf-8", "backslashreplace"), "last")["step"]) if line else None
    return None


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: such a value is null, and ``nonfinite`` says which it was."""
    odd = {key: str(value) for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)}
    return {key: None if key in odd else value for key, value in values.items()} | ({"nonfinite": odd} if odd else {})


def _parse(path: Path, line: str, number: int | str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        row["step"] = int(row["step"])
        odd = row.pop("nonfinite", {})
        return row | {key: float(text) for key, text in odd.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        where = f"{path}, line {number}"
        raise UserError(Problem(where, "this is no line of metrics", ("delete the line, or restore the file from a copy",))) from error


def _append_text(path: Path, lines: list[str]) -> None:
    with path.open("ab") as file:
        file.write(encode("".join(line + "\n" for line in lines)))
        file.flush()
        os.fsync(file.fileno())
