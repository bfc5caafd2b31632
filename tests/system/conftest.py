"""Starting the real program for a test, and leaving none of its processes behind."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.program import SMALL, Forge, Program, Start, environment, events, last_of_each


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    """For many small runs, of which only the curves matter."""
    opened = Forge()
    yield opened
    opened.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``python -m primus_app`` with overrides, in a folder of the test's own; whatever is left is killed at the end."""
    started: list[Program] = []

    def _start(*overrides: str, workspace: Path | None = None, exp_name: str = "run", cwd: Path | None = None) -> Program:
        place = workspace or tmp_path / "work space"
        arguments = [*last_of_each([*SMALL, *overrides]), f"workspace='{place}'", f"exp_name={exp_name}"]
        run = place / "primus" / "ada" / exp_name
        before = events(run).count("started")
        process = subprocess.Popen(
            [sys.executable, "-m", "primus_app", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd or tmp_path,
            env=environment(),
        )
        program = Program(process, run, before)
        started.append(program)
        return program

    yield _start
    for program in started:
        if program.process.poll() is None:
            for child in program.descendants():
                child.kill()
            program.process.kill()
            program.process.wait()
