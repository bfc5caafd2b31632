"""status.json."""

from pathlib import Path

import pytest

from primus_app.config.errors import UserError
from primus_app.run.directory import RunDirectory
from primus_app.run.status import State, Status, read_status, write_status


def test_what_is_written_is_read_and_none_before(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert read_status(run) is None
    status = Status(State.FAILED, attempt=2, cause="out of memory", rank=3, log="logs/pre_trainer/rank-3/error.log", exit_code=4, step=17)
    write_status(run, Status(State.RUNNING))
    write_status(run, status)
    assert read_status(run) == status
    assert status.time.endswith("+00:00")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "napping"}', '{"state": "failed", "rank": "first"}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    run = RunDirectory(tmp_path)
    run.status_file.write_text(text)
    with pytest.raises(UserError, match=r"status\.json: this file cannot be read"):
        read_status(run)
