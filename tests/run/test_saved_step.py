"""A saved step is found by its run or by its own folder."""

from pathlib import Path

import pytest

from primus_app.config.errors import UserError
from primus_app.config.schema import Config
from primus_app.run.directory import RunDirectory
from primus_app.run.open import open_run, record_start
from primus_app.run.record import read_record
from primus_app.run.saved_step import find_saved_step, is_run_or_step


@pytest.fixture
def run(config: Config) -> RunDirectory:
    """A run with steps 2 and 4 complete and 6 begun."""
    opened = open_run(config)
    record_start(opened, [], {}, [], {})
    opened.abandon()
    for step in (2, 4, 6):
        (opened.run.checkpoints_dir / f"step-{step}").mkdir(parents=True)
    for step in (2, 4):
        (opened.run.checkpoints_dir / f"step-{step}" / ".metadata").touch()
    return opened.run


def test_the_newest_step_a_step_and_a_folder(run: RunDirectory) -> None:
    record = read_record(run)
    assert record is not None
    newest = find_saved_step(run.path, where="here")
    assert (newest.step, newest.folder, newest.config.exp_name) == (4, run.checkpoints_dir / "step-4", "first")
    assert newest.identity == f"run:{record.id}/step-4"
    for again in (find_saved_step(run.path, 2, where="here"), find_saved_step(run.checkpoints_dir / "step-2", 2, where="here")):
        assert (again.step, again.run) == (2, run)


def test_what_is_a_run_or_a_step(run: RunDirectory, tmp_path: Path) -> None:
    assert is_run_or_step(run.path)
    assert is_run_or_step(run.checkpoints_dir / "step-9")
    assert not is_run_or_step(run.checkpoints_dir)
    assert not is_run_or_step(tmp_path)


@pytest.mark.parametrize(
    ("path", "step", "words"),
    [
        ("", 3, "step 3 of {run} is not there, or not complete"),
        ("", 6, "step 6 of {run} is not there, or not complete"),
        ("checkpoints/step-6", None, "complete: step 4, step 2"),
        ("checkpoints/step-2", 4, "step-2 is given, and step 4 too"),
        ("checkpoints", None, "is no run of this program"),
        ("run.json", None, "is a file"),
        ("nowhere", None, "no such folder"),
    ],
)
def test_what_is_not_there_is_refused(run: RunDirectory, path: str, step: int | None, words: str) -> None:
    with pytest.raises(UserError) as caught:
        find_saved_step(run.path / path, step, where="here")
    assert words.format(run=run.path) in str(caught.value)
    assert caught.value.problems[0].where == "here"
