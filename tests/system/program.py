"""Real runs of the program in their own workspace: start it, wait for a step, send it a signal, read what it left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("training.seq_len=32", "training.global_batch_size=4", "training.eval_every=0")
"""A step of 128 tokens: a few milliseconds."""
TIMEOUT_S = 150


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "USER": "ada", "OMP_NUM_THREADS": "1"}


@dataclass
class Program:
    """One started command line and the run directory it works on."""

    process: "subprocess.Popen[str]"
    run: Path
    starts_before: int = 0
    """How often ranks had been started in this run directory before."""

    def wait_for_step(self, step: int) -> None:
        """Until metrics.jsonl has ``step``; fails the test when the program ends before."""
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if any(row["step"] >= step for row in rows(self.run)):
                return
            if self.process.poll() is not None:
                pytest.fail(f"ended with {self.process.returncode} before step {step}: {self.output()}")
            time.sleep(0.05)
        pytest.fail(f"no step {step} in {TIMEOUT_S} s")

    def descendants(self) -> list[psutil.Process]:
        """The node agent and the ranks."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def agent(self) -> psutil.Process:
        return next(child for child in self.descendants() if "primus_app.launch.start agent" in " ".join(child.cmdline()))

    def ranks(self) -> dict[int, psutil.Process]:
        found = [child for child in self.descendants() if "primus_app.launch.start rank" in " ".join(child.cmdline())]
        return {int(child.environ()["RANK"]): child for child in found}

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def output(self) -> str:
        """Everything printed, once the program has ended."""
        return self.process.communicate(timeout=TIMEOUT_S)[0]

    def end(self) -> tuple[int, str]:
        """Exit code and output."""
        output = self.output()
        return self.process.returncode, output


def last_of_each(overrides: Sequence[str]) -> list[str]:
    """Of several values for a key the last, as a test's own stands after what all tests have."""
    return list({text.partition("=")[0]: text for text in overrides}.values())


Start = Callable[..., Program]


def rows(run: Path) -> list[dict[str, Any]]:
    """The complete lines of metrics.jsonl."""
    file = run / "metrics.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in rows(run) if "loss" in row]


def status(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "status.json").read_text())
    return found


def events(run: Path) -> list[str]:
    """Of the complete lines of events.jsonl."""
    file = run / "events.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line)["event"] for line in text.split("\n")[:-1]]


def gone(processes: list[psutil.Process], timeout_s: float = 15) -> bool:
    """Whether all have ended within the time; a zombie that nobody has reaped yet has ended."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if not any(alive(process) for process in processes):
            return True
        time.sleep(0.05)
    return False


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Forge:
    """Trains runs one after another in forked ranks; see forge.py."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("forge.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment())

    def train(self, *overrides: str, workspace: Path, exp_name: str) -> Path:
        """The run directory of a run that has completed; fails the test where it has not."""
        run, found = self._run(overrides, workspace, exp_name)
        if found["code"]:
            logs = "\n".join(log.read_text()[-3000:] for log in sorted(run.glob("attempts/*/forged-*.log")))
            pytest.fail(f"{found['code']}: {found['said']}\n{logs}")
        return run

    def fail(self, *overrides: str, workspace: Path, exp_name: str) -> Path:
        """The run directory of a run whose training has failed; fails the test where it has not."""
        run, found = self._run(overrides, workspace, exp_name)
        assert found["code"] == 4, found
        return run

    def _run(self, overrides: Sequence[str], workspace: Path, exp_name: str) -> tuple[Path, dict[str, Any]]:
        arguments = [*last_of_each([*SMALL, *overrides]), f"workspace='{workspace}'", f"exp_name={exp_name}"]
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        return workspace / "primus" / "ada" / exp_name, json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()
