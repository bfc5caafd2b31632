"""Printing that nobody reads any more, or that a full disk refuses, ends nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys
from primus_app.cli.lasting_output import lasting_output
with lasting_output():
    for line in range(20000):
        print("line", line, flush=line % 100 == 0)
    print("done", file=sys.stderr)
print("after")
"""


def run(output: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", CODE], stdout=output, stderr=subprocess.PIPE, text=True, env=environment, check=False)


def test_a_reader_that_leaves() -> None:
    read, write = os.pipe()
    os.close(read)
    done = run(write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "note: nothing more is printed (Broken pipe); the run goes on\ndone\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk() -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(full.fileno())
    assert (done.returncode, done.stderr) == (0, "note: nothing more is printed (No space left on device); the run goes on\ndone\n")
