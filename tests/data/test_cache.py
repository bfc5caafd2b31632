"""Cached folders under concurrency, kill -9, damage and full disks, with real processes and a real small disk."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from primus_app.config.errors import ExitCode, UserError
from primus_app.data.cache import Facts, cache_root, cached_folder

BUILDER = """
import os, signal, sys, time
from pathlib import Path
from primus_app.data.cache import cached_folder
root, act = Path(sys.argv[1]), sys.argv[2]
def build(folder):
    with open(root / "builders", "a") as stream:
        stream.write(f"{os.getpid()}\\n")
    (folder / "a").write_bytes(b"x" * 1000)
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)
    (folder / "b").write_bytes(b"y" * 1000)
    return {"builder": os.getpid()}
root.mkdir(exist_ok=True)
print(cached_folder(root, "thing", build, 2000)[1]["builder"])
"""


def start(root: Path, act: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(root), act], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )


def build(folder: Path) -> Facts:
    (folder / "a").write_bytes(b"x" * 1000)
    return {"answer": 42}


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".lock", "builders"}


def test_builds_once_and_returns_the_facts(tmp_path: Path) -> None:
    folder, facts = cached_folder(tmp_path / "new", "thing", build, 1000)
    assert (folder, facts) == (tmp_path / "new" / "thing", {"answer": 42})
    assert json.loads((folder / "meta.json").read_text()) == {"files": {"a": 1000}, "facts": {"answer": 42}}
    assert cached_folder(tmp_path / "new", "thing", lambda folder: pytest.fail("built twice"), 1000) == (folder, facts)


def test_a_finished_cache_needs_no_write_access(tmp_path: Path) -> None:
    cached_folder(tmp_path, "thing", build, 1000)
    (tmp_path / ".lock").unlink()
    cached_folder(tmp_path, "thing", build, 1000)
    assert not (tmp_path / ".lock").exists()


def test_of_concurrent_processes_one_builds(tmp_path: Path) -> None:
    processes = [start(tmp_path, "build") for _ in range(3)]
    answers = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(answers) == 1
    assert (tmp_path / "builders").read_text() in answers
    assert names(tmp_path) == {"thing"}


def test_what_a_killed_process_left_is_never_used_and_removed(tmp_path: Path) -> None:
    victim = start(tmp_path, "die")
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    (left,) = names(tmp_path)
    assert left.startswith(".building-")
    folder, facts = cached_folder(tmp_path, "thing", build, 1000)
    assert facts == {"answer": 42}
    assert names(tmp_path) == {"thing"}
    assert not (folder / "b").exists()


@pytest.mark.parametrize("damage", ["truncate", "delete", "grow", "no meta", "bad meta"])
def test_a_damaged_cache_is_built_again_with_a_warning(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    folder, _ = cached_folder(tmp_path, "thing", build, 1000)
    match damage:
        case "truncate":
            os.truncate(folder / "a", 999)
        case "delete":
            (folder / "a").unlink()
        case "grow":
            os.truncate(folder / "a", 1001)
        case "no meta":
            (folder / "meta.json").unlink()
        case "bad meta":
            (folder / "meta.json").write_text('{"files": ')
    assert cached_folder(tmp_path, "thing", build, 1000)[1] == {"answer": 42}
    assert (folder / "a").stat().st_size == 1000
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{folder} is damaged" in caplog.text


def test_a_mistake_while_building_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> Facts:
        build(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_folder(tmp_path, "thing", fail, 1000)
    assert names(tmp_path) == set()


def test_a_race_without_locks_is_lost_gracefully(tmp_path: Path) -> None:
    def overtaken(folder: Path) -> Facts:
        winner = tmp_path / "thing"
        winner.mkdir()
        (winner / "meta.json").write_text('{"files": {}, "facts": {"answer": 43}}')
        return build(folder)

    assert cached_folder(tmp_path, "thing", overtaken, 1000)[1] == {"answer": 43}
    assert names(tmp_path) == {"thing"}


def test_a_full_disk(tmp_path: Path) -> None:
    mounted = (
        os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=False).returncode == 0
    )
    if not mounted:
        pytest.skip("mounting a small disk needs root")

    def large(folder: Path) -> Facts:
        (folder / "a").write_bytes(b"x" * 1_000_000)
        return {}

    try:
        with pytest.raises(UserError) as caught:
            cached_folder(tmp_path, "thing", large, 1_000_000)
        assert names(tmp_path) == set()
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert caught.value.code == ExitCode.UNFIT_MACHINE
    text = str(caught.value)
    assert f"written to {tmp_path}: No space left on device. It takes 1,000,000 bytes (1.0 MB)." in text
    assert "data.cache_dir=" in text


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=rf"data.cache_dir: prepared data cannot be written to {root}") as caught:
            cached_folder(root, "thing", build, 1000)
        assert caught.value.code == ExitCode.UNFIT_MACHINE
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(UserError, match="Permission denied"):
        cached_folder(tmp_path, "thing", build, 1000)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/fast/cache")
    assert cache_root(None) == Path("/fast/cache/primus_app")
    assert cache_root("~/mine") == Path("/home/someone/mine")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root(None) == Path("/home/someone/.cache/primus_app")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root(None) == Path("/home/someone/.cache/primus_app")
    with pytest.raises(UserError, match=r"data.cache_dir"):
        cache_root("~no_such_user_here/cache")
