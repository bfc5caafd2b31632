"""What happened to a run, one line of JSON each, appended by whoever saw it."""

import json
import os
import socket
from contextlib import suppress
from enum import StrEnum
from typing import Any

from primus_app.run.clock import utc_now
from primus_app.run.directory import RunDirectory
from primus_app.run.files import after_newline, append_line, complete_lines, explain_os_errors


class Event(StrEnum):
    """The events that readers may rely on."""

    STARTED = "started"
    RESUMED = "resumed"
    DATA_PREPARED = "data_prepared"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_DELETED = "checkpoint_deleted"
    """An unfinished one; those that are too many go without an event."""
    EVALUATION = "evaluation"
    METRICS_DROPPED = "metrics_dropped"
    SIGNAL = "signal"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    FAILED = "failed"
    COMPLETED = "completed"
    UNREADABLE = "unreadable"
    """Made by read_events of a line that is no JSON (a disk that was full for a moment); never written."""


def append_event(run: RunDirectory, event: str, **fields: Any) -> None:
    """Add one line: time (UTC), event, host, pid, and ``fields`` (JSON values; none of those four names)."""
    # Several hosts appending to one file over NFS can overwrite each other: events of a run are written on its first node.
    stamp = {"time": utc_now(), "event": str(event), "host": socket.gethostname(), "pid": os.getpid()}
    if clash := stamp.keys() & fields.keys():
        raise ValueError(f"fields of an event may not be named {sorted(clash)}")
    with explain_os_errors(run.events_file, "writing down an event"):
        append_line(run.events_file, stamp | fields)


def mend_events(run: RunDirectory) -> None:
    """Cut a last line that a kill or a full disk has torn; only while this process holds the run and nobody else appends."""
    with explain_os_errors(run.events_file, "cutting a torn event"), suppress(FileNotFoundError), run.events_file.open("rb+") as file:
        file.truncate(after_newline(file.fileno(), os.fstat(file.fileno()).st_size))


def read_events(run: RunDirectory) -> list[dict[str, Any]]:
    """All events, oldest first; a torn last line is left out."""
    return [_parse(line) for line in complete_lines(run.events_file) if line]


def _parse(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    return event if isinstance(event, dict) else {"event": str(Event.UNREADABLE), "text": line}
