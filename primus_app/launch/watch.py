"""The terminal's view of a run: one moving line while it trains, plain lines where there is no terminal."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from primus_app.backends.stored_index import whole_step
from primus_app.run.clock import utc_now
from primus_app.run.directory import RunDirectory
from primus_app.run.events import Event, read_events

POLL_S = 0.2
PLAIN_EVERY_S = 5.0
"""Without a terminal, lines of training steps come at most this often; evaluations always."""


class View(Protocol):
    """Something that shows one line of metrics.jsonl."""

    def show(self, row: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def watch(run: RunDirectory, attempt: int, steps: int, alive: Callable[[], bool]) -> None:
    """Show metrics as they are written until ``alive`` says no; then once more, so that no line is missed."""
    begin = whole_step(run.checkpoints_dir)[0] or 0
    view: View = TerminalView(steps, begin) if sys.stdout.isatty() else PlainView(steps)
    tail = Tail(run.metrics_file)
    told = False
    try:
        running = True
        while running:
            running = alive()
            for row in tail.rows():
                if not told and (note := _went_back(run, attempt, begin)):
                    print(f"note: {note}", file=sys.stderr, flush=True)
                told = True
                view.show(row)
            if running:
                time.sleep(POLL_S)
    finally:
        view.close()


def _went_back(run: RunDirectory, attempt: int, begin: int) -> str | None:
    """Where the ranks have found damage in a checkpoint that looked whole, and so went on from an older one than ``begin``."""
    found = [event for event in read_events(run) if event.get("event") == Event.RESUMED and event.get("attempt") == attempt]
    step = found[-1].get("step") if found else None
    if step is None or step >= begin:
        return None
    return f"checkpoint step-{begin} is damaged: training goes on after step {step}; {run.path / 'logs'} has the reason (warning.log)"


class Tail:
    """The complete lines that are added to a file of metrics from now on.

    An attempt that resumes from an older checkpoint replaces the file by a shorter one; of that the lines since now are read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._since = utc_now()
        self._inode, self._position = self._stat()

    def rows(self) -> list[dict[str, Any]]:
        """What has been added since the last look."""
        inode, size = self._stat()
        if inode != self._inode or size < self._position:
            self._inode, self._position = inode, 0
        if size <= self._position:
            return []
        with self._file.open("rb") as stream:
            stream.seek(self._position)
            data = stream.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._position += len(complete)
        rows = [row for line in complete.splitlines() if (row := _parsed(line))]
        return [row for row in rows if row.get("time", self._since) >= self._since]

    def _stat(self) -> tuple[int, int]:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_ino, status.st_size


def _parsed(line: bytes) -> dict[str, Any] | None:
    """None for a line that something else has damaged: the terminal's view ends no run."""
    with suppress(ValueError):
        row = json.loads(line)
        return row if isinstance(row, dict) else None
    return None


def describe(row: dict[str, Any]) -> str:
    """The numbers of one row that people watch, left to right."""
    parts = [
        ("loss", "loss {:.4f}"),
        ("eval_loss", "evaluation loss {:.4f}"),
        ("tokens_per_s_per_device", "{:,.0f} tok/s/dev"),
        ("tflops_per_device", "{:.3g} TFLOP/s"),
        ("mfu", "MFU {:.1%}"),
        ("memory_gib", "{:.2f} GiB"),
    ]
    return "  ".join(text.format(row[name]) for name, text in parts if row.get(name) is not None)


class PlainView:
    """Lines for a file or a pipe."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._shown = 0.0

    def show(self, row: dict[str, Any]) -> None:
        now = time.monotonic()
        if "eval_loss" in row or row["step"] in (1, self._steps) or now - self._shown >= PLAIN_EVERY_S:
            self._shown = now
            print(f"step {row['step']:>5}/{self._steps}  {describe(row)}", flush=True)

    def close(self) -> None:
        return None


class TerminalView:
    """One line that moves; evaluations stay above it."""

    def __init__(self, steps: int, begin: int = 0) -> None:
        """``begin`` is the step after which training goes on, of ``steps``."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        numbers = Column(no_wrap=True, overflow="ellipsis")  # What gives way where the terminal is narrow.
        self._progress = Progress(
            TextColumn("step", table_column=Column(no_wrap=True, min_width=4)),
            MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=len(f"{steps}/{steps}"))),
            BarColumn(bar_width=16),
            TextColumn("{task.description}", table_column=numbers),
            TimeRemainingColumn(compact=True),
            console=Console(),
        )
        self._task = self._progress.add_task("starting", total=steps, completed=begin)
        self._progress.start()

    def show(self, row: dict[str, Any]) -> None:
        if "eval_loss" in row:
            self._progress.console.print(f"step {row['step']:>5}  {describe(row)}", highlight=False)
        else:
            self._progress.update(self._task, completed=row["step"], description=describe(row))

    def close(self) -> None:
        self._progress.stop()
