"""Processes end with the one that has forked them, also when that is killed."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

FORKING = """
import multiprocessing, os, threading, time
from primus_app.run.orphan import forks_die_with_parent
forks_die_with_parent()
fork = multiprocessing.get_context("fork")
def child(report):
    grandchild = fork.Process(target=time.sleep, args=(60,))
    grandchild.start()
    report.put((os.getpid(), grandchild.pid))
    time.sleep(60)
def forked_by_a_thread(report):
    process = fork.Process(target=time.sleep, args=(60,))
    process.start()
    report.put(process.pid)
report = fork.SimpleQueue()
fork.Process(target=child, args=(report,)).start()
family = report.get()
thread = threading.Thread(target=forked_by_a_thread, args=(report,))
thread.start()
thread.join()
print(*family, report.get(), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl(2) is Linux's")
def test_forks_and_their_forks_end_with_a_killed_process() -> None:
    """One that a thread has forked lives on: the kernel would end it with the thread."""
    process = subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    child, grandchild, of_thread = (psutil.Process(int(pid)) for pid in process.stdout.readline().split())
    try:
        assert of_thread.is_running()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        end = time.monotonic() + 15
        while any(_lives(each) for each in (child, grandchild)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not _lives(child)
        assert not _lives(grandchild)
        assert _lives(of_thread)
    finally:
        of_thread.kill()


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
