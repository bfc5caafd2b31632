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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON: EOF while parsing a value at line 1 column 0"),
        ("{", "it is not JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "it does not hold what this program writes there"),
        ("{}", "state is missing"),
        ('{"state": "napping"}', 'state may not be "napping"'),
        ('{"state": "failed", "rank": "first"}', 'rank may not be "first"'),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    run = RunDirectory(tmp_path)
    run.status_file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_status(run)
    assert str(caught.value).splitlines()[0] == f"{run.status_file}: this file cannot be read ({reason})"
