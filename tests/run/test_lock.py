"""One holder at a time, between real processes."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from primus_app.config.errors import ExitCode, UserError
from primus_app.run.directory import RunDirectory
from primus_app.run.lock import acquire_lock, make_folders

HOLD = """
import sys
from pathlib import Path
from primus_app.run.directory import RunDirectory
from primus_app.run.lock import acquire_lock
lock = acquire_lock(RunDirectory(Path(sys.argv[1])))
print("held", flush=True)
sys.stdin.read()
"""

HOLD_BY_CHILD = """
import subprocess, sys
from pathlib import Path
from primus_app.run.directory import RunDirectory
from primus_app.run.lock import acquire_lock
lock = acquire_lock(RunDirectory(Path(sys.argv[1])))
child = subprocess.Popen(["sleep", "600"], pass_fds=[lock.fileno()], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
lock.release()
sys.stdin.read()
"""


def _start(script: str, run: RunDirectory) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "output" / "first")


def test_the_second_is_told_who_holds_it_and_a_killed_holder_frees_it(run: RunDirectory) -> None:
    holder = _start(HOLD, run)
    try:
        assert _first_line(holder) == "held"
        with pytest.raises(UserError) as caught:
            acquire_lock(run)
        text = str(caught.value)
        assert caught.value.code == ExitCode.BAD_REQUEST
        assert text.startswith(
            f"{run.path}: another process is carrying this run out (host {socket.gethostname()}, pid {holder.pid}, since 2"
        )
        assert "wait until it has ended" in text
        assert "exp_name=<another name>" in text
    finally:
        _end(holder)
    with acquire_lock(run) as lock:
        assert str(os.getpid()) in run.lock_file.read_text()
        assert lock.created == ()


def test_a_child_that_inherits_the_lock_keeps_it(run: RunDirectory) -> None:
    parent = _start(HOLD_BY_CHILD, run)
    child = int(_first_line(parent))
    try:
        with pytest.raises(UserError, match="carrying this run out"):
            acquire_lock(run)  # the parent has released, its child lives
        _end(parent)
        with pytest.raises(UserError, match="still alive, though the one that started them has ended") as caught:
            acquire_lock(run)
        assert f"fuser -v {run.lock_file}" in str(caught.value)
    finally:
        os.kill(child, signal.SIGKILL)
    with run.lock_file.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits for the kernel to have buried the child
    acquire_lock(run).release()


def test_the_same_process_is_refused_too_and_release_is_idempotent(run: RunDirectory) -> None:
    lock = acquire_lock(run)
    with pytest.raises(UserError, match=f"pid {os.getpid()}"):
        acquire_lock(run)
    lock.release()
    lock.release()
    acquire_lock(run).release()
    with pytest.raises(ValueError, match="released"):
        lock.fileno()


def test_undo_removes_only_what_was_made(run: RunDirectory) -> None:
    run.path.parent.parent.mkdir(exist_ok=True)
    lock = acquire_lock(run)
    assert lock.created == (run.path.parent, run.path)
    neighbour = run.path.parent / "second"
    neighbour.mkdir()
    lock.undo()
    assert list(run.path.parent.iterdir()) == [neighbour]


def test_many_at_once_on_a_new_place_with_undoing_never_share_it(run: RunDirectory) -> None:
    """Each round takes the lock, adds one to a plain file and undoes the folders: two holders at once would lose a count."""
    count = run.path.parent.parent / "count"
    count.write_text("0")
    errors: list[BaseException] = []

    def work() -> None:
        done = 0
        while done < 25 and not errors:
            try:
                lock = acquire_lock(run)
            except UserError as error:
                if error.code != ExitCode.BAD_REQUEST:
                    errors.append(error)
                continue
            count.write_text(str(int(count.read_text()) + 1))
            lock.undo()
            done += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert count.read_text() == "100"
    assert list(run.path.parent.rglob("*")) in ([], [run.path]), (
        "at most an empty folder, where the maker was refused and the holder is another"
    )


def test_a_file_in_the_place_of_the_folder(run: RunDirectory) -> None:
    run.path.parent.mkdir()
    run.path.write_text("mine")
    with pytest.raises(UserError, match="Not a directory while creating the run's folder") as caught:
        acquire_lock(run)
    assert caught.value.code == ExitCode.UNFIT_MACHINE
    assert run.path.read_text() == "mine"


def test_a_place_where_no_folder_can_be_made_ends() -> None:
    with pytest.raises(OSError, match="/proc"):
        make_folders(Path("/proc/none/of/this"), [])


def test_a_read_only_workspace(read_only_disk: Path) -> None:
    with pytest.raises(UserError, match="Read-only file system") as caught:
        acquire_lock(RunDirectory(read_only_disk / "primus" / "ada" / "first"))
    assert caught.value.code == ExitCode.UNFIT_MACHINE


def test_a_full_disk_leaves_no_folder(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(0)
    with pytest.raises(UserError, match="No space left") as caught:
        acquire_lock(RunDirectory(disk / "primus" / "ada" / "first"))
    assert caught.value.code == ExitCode.UNFIT_MACHINE
    assert os.listdir(disk) == ["filler"]
