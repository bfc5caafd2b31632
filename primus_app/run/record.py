"""run.json: what the run is, since when, and what was allowed to change since."""

import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from primus_app.config.schema import Config
from primus_app.run.clock import utc_now
from primus_app.run.directory import RunDirectory
from primus_app.run.files import explain_os_errors, json_text, parse_file, write_atomic
from primus_app.run.what import What, total_steps, what_digest, what_of


@dataclass(frozen=True)
class RunRecord:
    """``what`` is the newest that was accepted; ``history`` has one entry for the creation and one for each raised length."""

    id: str
    created: str
    what: What
    what_digest: str
    schedule_steps: int
    data_digest: str | None
    history: tuple[dict[str, Any], ...]


_RECORD = TypeAdapter(RunRecord)


def new_record(config: Config) -> RunRecord:
    """The record of a new run; ``config`` has its schedule_steps filled."""
    what, now = what_of(config), utc_now()
    entry = {"time": now, "change": "created", "steps": total_steps(what)}
    return RunRecord(uuid.uuid4().hex, now, what, what_digest(what), what["optimizer.schedule_steps"], None, (entry,))


def record_text(record: RunRecord) -> str:
    """The record as run.json holds it."""
    return json_text(asdict(record))


def write_record(run: RunDirectory, record: RunRecord) -> None:
    """Replace run.json atomically."""
    with explain_os_errors(run.run_file, "writing what the run is"):
        write_atomic(run.run_file, record_text(record))


def read_record(run: RunDirectory) -> RunRecord | None:
    """The record, None where there is no run; UserError names a damaged file."""
    return parse_file(run.run_file, _RECORD.validate_json)


def raise_steps(run: RunDirectory, record: RunRecord, what: What) -> RunRecord:
    """Record a longer run, with the old and the new number of steps."""
    entry = {"time": utc_now(), "change": "steps raised", "from": total_steps(record.what), "steps": total_steps(what)}
    longer = replace(record, what=what, history=(*record.history, entry))
    write_record(run, longer)
    return longer
