"""events.jsonl."""

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from primus_app.run.directory import RunDirectory
from primus_app.run.events import Event, append_event, mend_events, read_events


def test_an_event_says_when_where_and_what(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert read_events(run) == []
    before = datetime.now(UTC)
    append_event(run, Event.CHECKPOINT, step=100, path="checkpoints/100")
    append_event(run, "lunch")
    first, second = read_events(run)
    assert (first["event"], first["step"], first["path"]) == ("checkpoint", 100, "checkpoints/100")
    assert (first["host"], first["pid"]) == (socket.gethostname(), os.getpid())
    assert abs((datetime.fromisoformat(first["time"]) - before).total_seconds()) < 60
    assert second["event"] == "lunch"


def test_a_torn_last_line_is_left_out_and_a_torn_line_inside_is_told(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    append_event(run, "started")
    with run.events_file.open("a") as file:
        file.write('{"time": "20')
    assert [event["event"] for event in read_events(run)] == ["started"]
    append_event(run, "completed")
    assert [event["event"] for event in read_events(run)] == ["started", "unreadable", "completed"]


def test_a_torn_last_line_is_mended(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    mend_events(run)
    assert not run.events_file.exists()
    append_event(run, "started")
    whole = run.events_file.read_bytes()
    for torn in (b"", b'{"time": "20'):
        run.events_file.write_bytes(whole + torn)
        mend_events(run)
        assert run.events_file.read_bytes() == whole


def test_the_stamp_cannot_be_forged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pid"):
        append_event(RunDirectory(tmp_path), "started", pid=1)
