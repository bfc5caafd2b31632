"""The run's state in one small file: one word, its cause, and where to look."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from pydantic import TypeAdapter

from primus_app.run.clock import utc_now
from primus_app.run.directory import RunDirectory
from primus_app.run.files import explain_os_errors, json_text, parse_file, write_atomic


class State(StrEnum):
    """What a run can be; the last four are ends of an attempt."""

    CREATED = "created"
    SUBMITTED = "submitted"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Status:
    """``cause`` is one sentence, ``rank`` the one that failed first, ``log`` its log file, ``step`` the last one finished."""

    state: State
    attempt: int | None = None
    cause: str | None = None
    rank: int | None = None
    log: str | None = None
    exit_code: int | None = None
    step: int | None = None
    time: str = field(default_factory=utc_now)


_STATUS = TypeAdapter(Status)


def write_status(run: RunDirectory, status: Status) -> None:
    """Replace status.json; a reader sees the old or the new, never a mixture."""
    with explain_os_errors(run.status_file, "writing the run's state"):
        write_atomic(run.status_file, json_text(asdict(status)))


def read_status(run: RunDirectory) -> Status | None:
    """The state, None before the first; UserError names a file that is not ours any more."""
    return parse_file(run.status_file, _STATUS.validate_json)
