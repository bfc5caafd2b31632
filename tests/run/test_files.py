"""Small files are whole or absent, and the system's refusals are explained."""

import json
import os
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest

from primus_app.config.errors import ExitCode, UserError
from primus_app.run.files import append_line, complete_lines, explain_os_errors, write_atomic


def test_replacing_keeps_the_mode_of_ordinary_files(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    write_atomic(file, "old")
    write_atomic(file, "new ü")
    assert file.read_text() == "new ü"
    assert os.listdir(tmp_path) == ["status.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~mask, "a team reads what one of it has written"


def test_a_full_disk_leaves_the_old_file_and_nothing_else(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(8192)
    file = disk / "status.json"
    write_atomic(file, "old")
    with pytest.raises(UserError) as caught, explain_os_errors(file, "writing the run's state"):
        write_atomic(file, "x" * 100_000)
    assert file.read_text() == "old"
    assert sorted(os.listdir(disk)) == ["filler", "status.json"]
    text = str(caught.value)
    assert caught.value.code == ExitCode.UNFIT_MACHINE
    assert text.startswith(f"{file}: No space left on device while writing the run's state; ")
    assert "4 KiB of 64 KiB free" in text  # 64 KiB less 56 of filler less one page of 4 with "old"
    assert "workspace=<folder>" in text


def test_a_full_disk_tears_no_line(small_disk: Callable[[int], Path]) -> None:
    file = small_disk(4096) / "events.jsonl"
    append_line(file, {"n": 0})
    with pytest.raises(OSError, match="No space left"):
        append_line(file, {"n": "x" * 8000})
    assert complete_lines(file) == ['{"n": 0}']
    assert file.read_text().endswith("}\n")


def test_a_read_only_disk_is_explained(read_only_disk: Path) -> None:
    with (
        pytest.raises(UserError, match="mounted read-only: choose another") as caught,
        explain_os_errors(read_only_disk / "a", "writing it"),
    ):
        write_atomic(read_only_disk / "a", "x")
    assert caught.value.code == ExitCode.UNFIT_MACHINE


def test_a_file_in_the_way_is_explained(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("")
    file = tmp_path / "output" / "a"
    with (
        pytest.raises(UserError, match=r"Not a directory while writing it.*\n  a part of this path is a file"),
        explain_os_errors(file, "writing it"),
    ):
        write_atomic(file, "x")


def test_other_errors_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(KeyError), explain_os_errors(tmp_path, "thinking"):
        raise KeyError


def _append_many(file: str, name: str) -> None:
    for number in range(200):
        append_line(Path(file), {"name": name, "number": number, "filler": name * 500})


def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    workers = [get_context("spawn").Process(target=_append_many, args=(str(file), name)) for name in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rows = [json.loads(line) for line in complete_lines(file) if line]
    assert [[row["number"] for row in rows if row["name"] == name] for name in "abc"] == [list(range(200))] * 3


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"n": 0}\n{"n": 1, "te')
    append_line(file, {"n": 2})
    assert complete_lines(file) == ['{"n": 0}', '{"n": 1, "te', '{"n": 2}']


def test_bytes_that_are_no_text_become_readable_json(tmp_path: Path) -> None:
    word = os.fsdecode(b"caf\xe9 \xc3\xa9")
    append_line(tmp_path / "a", {"word": word})
    assert json.loads((tmp_path / "a").read_text(encoding="utf-8")) == {"word": word}
