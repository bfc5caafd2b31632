"""New, continued, finished, refused."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from primus_app.config.errors import ExitCode, UserError
from primus_app.config.schema import Config
from primus_app.run.directory import attempts, run_directory
from primus_app.run.lock import acquire_lock
from primus_app.run.open import OpenedRun, open_run, record_start
from primus_app.run.record import read_record
from primus_app.run.snapshot import STAGING, read_config
from primus_app.run.status import State, Status, read_status, write_status
from primus_app.run.what import half_of, what_of

ENVIRONMENT: dict[str, Any] = {"program": None}
PAGES = 1 + 6 + 5
"""What a start with a plan of 5 kB takes: the lock; four small files and a plan of two pages; three small files and the plan again."""
PLACE = {"work_group", "user_name", "exp_name", "workspace"}


def start(config: Config) -> OpenedRun:
    """Open and record, as the door does, and let go."""
    opened = open_run(config)
    record_start(opened, ["model=llama_tiny"], {"world_size": 1}, ["primus"], ENVIRONMENT)
    opened.lock.release()
    return opened


def leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every key of the configuration with its half."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, half_of(field)


def other_value(value: Any) -> Any:
    """Some other value; whether it is a legal one does not matter here."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, dict):
        return {**value, "other": 1}
    return "other"


def with_value(section: Any, key: str, change: Callable[[Any], Any]) -> Any:
    name, _, rest = key.partition(".")
    old = getattr(section, name)
    return section.model_copy(update={name: with_value(old, rest, change) if rest else change(old)})


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"
    }


def test_a_new_run_is_filled_in_and_recorded(config: Config) -> None:
    opened = start(config)
    assert opened.kind == "new"
    assert opened.config.optimizer.schedule_steps == 200
    assert opened.run.path.is_dir()
    assert read_config(opened.run.config_file) == opened.config
    record = read_record(opened.run)
    assert record is not None
    assert (record.what, record.schedule_steps, record.data_digest) == (what_of(opened.config), 200, None)
    assert [entry["change"] for entry in record.history] == ["created"]
    assert [attempt.number for attempt in attempts(opened.run)] == [0]


def test_the_same_again_continues_and_changes_nothing_but_the_attempts(config: Config) -> None:
    first = start(config)
    before = tree(first.run.path)
    again = start(with_value(config, "parallel.tp", lambda _: 2))
    assert (again.kind, again.raised_from) == ("continue", None)
    after = tree(first.run.path)
    assert {name: text for name, text in after.items() if not name.startswith("attempts/1/")} == before
    assert read_config(first.run.attempts_dir / "1" / "config.yaml").parallel.tp == 2


def test_every_what_is_refused_and_every_how_is_accepted(full_model: Config) -> None:
    config = full_model
    start(config)
    before = tree(run_directory(config).path)
    halves = {key: half for key, half in leaves(config) if key not in PLACE}
    assert len(halves) > 100
    for key, half in halves.items():
        changed = with_value(config, key, other_value)
        if key == "training.steps":
            changed = with_value(config, key, lambda steps: steps - 1)
        if key == "training.tokens":
            changed = with_value(with_value(config, "training.steps", lambda _: None), key, lambda _: 1)
        if half == "how":
            opened = open_run(changed)
            assert opened.kind == "continue", key
            opened.lock.release()
        else:
            with pytest.raises(UserError) as caught:
                open_run(changed)
            assert caught.value.code == ExitCode.BAD_REQUEST
            assert key in [problem.where for problem in caught.value.problems], key
            assert "exp_name=<another name>" in str(caught.value)
    assert tree(run_directory(config).path) == before, "asking changes nothing"


def test_all_differing_keys_are_shown_with_both_values(config: Config) -> None:
    start(config)
    other = with_value(with_value(config, "optimizer.lr", lambda _: 1e-4), "training.seed", lambda _: 7)
    with pytest.raises(UserError) as caught:
        open_run(other)
    text = str(caught.value)
    assert "training.seed: 1234 in the run, 7 now" in text
    assert "optimizer.lr: 0.003 in the run, 0.0001 now" in text
    assert [problem.where for problem in caught.value.problems[:-1]] == ["training.seed", "optimizer.lr"]


def test_raised_steps_are_recorded_and_keep_the_schedule(config: Config) -> None:
    first = start(config)
    longer = with_value(config, "training.steps", lambda _: 400)
    opened = start(longer)
    assert (opened.kind, opened.raised_from) == ("continue", 200)
    assert opened.config.optimizer.schedule_steps == 200
    record = read_record(first.run)
    assert record is not None
    assert [(entry["change"], entry.get("from"), entry["steps"]) for entry in record.history] == [
        ("created", None, 200),
        ("steps raised", 200, 400),
    ]
    assert record.what["training.steps"] == 400
    assert read_config(first.run.config_file).training.steps == 200, "the first snapshot stays"
    with pytest.raises(
        UserError, match=r"training.steps: 400 in the run, 200 now\n  a run can be made longer than its 400 steps, never shorter"
    ):
        open_run(config)


def test_another_length_of_the_schedule_is_refused_with_the_reason(config: Config) -> None:
    start(config)
    with pytest.raises(UserError, match="fixed at the first start"):
        open_run(with_value(config, "optimizer.schedule_steps", lambda _: 400))
    opened = open_run(with_value(config, "optimizer.schedule_steps", lambda _: 200))
    assert opened.kind == "continue"
    opened.lock.release()


@pytest.mark.parametrize("step", [None, 200])
def test_finished_until_it_is_made_longer_even_if_that_attempt_was_killed(config: Config, step: int | None) -> None:
    run = start(config).run
    write_status(run, Status(State.COMPLETED, attempt=0, exit_code=0, step=step))
    opened = open_run(config)
    assert opened.kind == "finished"
    opened.lock.release()
    longer = with_value(config, "training.steps", lambda _: 400)
    for _ in range(2):  # the second time the record already says 400, and the attempt has written no state
        opened = open_run(longer)
        assert opened.kind == "continue"
        opened.lock.release()
    status = read_status(run)
    assert status is not None
    assert (status.state, status.attempt, status.step, status.exit_code) == (State.CREATED, 0, step, None)


@pytest.mark.parametrize("state", [None, *(state for state in State if state is not State.COMPLETED)])
def test_anything_but_completed_continues(config: Config, state: State | None) -> None:
    run = start(config).run
    if state:
        write_status(run, Status(state, step=200))
    opened = open_run(config)
    assert opened.kind == "continue"
    opened.lock.release()


def test_a_folder_of_somebody_else_is_not_touched(config: Config) -> None:
    path = run_directory(config).path
    path.mkdir(parents=True)
    (path / "thesis.tex").write_text("years of work")
    (path / "config.yaml").write_text("of another program")
    with pytest.raises(UserError, match=r"holds no run of this program \(it holds config.yaml, thesis.tex\)") as caught:
        open_run(config)
    assert caught.value.code == ExitCode.BAD_REQUEST
    assert sorted(os.listdir(path)) == ["config.yaml", "thesis.tex"]


def test_an_empty_folder_and_our_leftovers_are_a_free_place(config: Config) -> None:
    path = run_directory(config).path
    path.mkdir(parents=True)
    (path / STAGING).mkdir()
    (path / STAGING / "run.json").write_text("{")
    (path / "config.yaml").write_text("killed while it was moved")
    (path / ".lock").write_text("")
    (path / ".tmp-status.json-1-ab").write_text("")
    opened = start(config)
    assert opened.kind == "new"
    assert not [name for name in os.listdir(path) if name.startswith(".tmp-")]
    assert read_config(opened.run.config_file) == opened.config


def test_a_run_inside_a_run_is_refused(config: Config) -> None:
    start(config)
    with pytest.raises(UserError, match="lies inside another run"):
        open_run(config.model_copy(update={"exp_name": "first/checkpoints"}))
    opened = start(config.model_copy(update={"exp_name": "sweep/0"}))
    assert opened.run.path.parts[-2:] == ("sweep", "0")


def test_a_run_without_a_name_gets_a_free_one(config: Config) -> None:
    nameless = config.model_copy(update={"exp_name": None})
    first, second = start(nameless), start(nameless)
    assert first.config.exp_name != second.config.exp_name
    assert first.run.path.name == first.config.exp_name
    assert read_config(first.run.config_file).exp_name == first.config.exp_name


def test_a_held_run_is_refused(config: Config) -> None:
    run = start(config).run
    with acquire_lock(run), pytest.raises(UserError, match="carrying this run out"):
        open_run(config)
    opened = open_run(config)
    with pytest.raises(UserError, match="carrying this run out"):
        open_run(config)
    opened.lock.release()


def test_a_damaged_record_is_named_and_kept(config: Config) -> None:
    run = start(config).run
    run.run_file.write_text('{"id": "x"')
    with pytest.raises(UserError, match=r"run\.json: this file cannot be read"):
        open_run(config)
    assert run.run_file.read_text() == '{"id": "x"'
    acquire_lock(run).release()  # a refusal holds nothing


def test_abandon_removes_a_new_run_without_snapshot_and_keeps_a_recorded_one(config: Config) -> None:
    opened = open_run(config)
    opened.abandon()
    assert not Path(config.workspace).exists()
    opened = open_run(config)
    record_start(opened, [], {}, [], ENVIRONMENT)
    opened.abandon()
    assert opened.run.run_file.exists()
    assert opened.run.lock_file.exists(), "a child may hold it"
    acquire_lock(opened.run).release()


@pytest.mark.parametrize("free", range(0, PAGES * 4096, 4096))
def test_a_full_disk_leaves_nothing_of_a_new_run(config: Config, small_disk: Callable[[int], Path], free: int) -> None:
    """Whatever does not fit, from the lock to the last file of the attempt."""
    disk = small_disk(free)
    with pytest.raises(UserError, match="No space left on device") as caught:
        record_start(open_run(config.model_copy(update={"workspace": str(disk)})), [], {"filler": "x" * 5000}, [], ENVIRONMENT)
    assert caught.value.code == ExitCode.UNFIT_MACHINE
    assert "workspace=<folder>" in str(caught.value)
    assert os.listdir(disk) == ["filler"]


def test_the_same_disk_with_room_is_enough(config: Config, small_disk: Callable[[int], Path]) -> None:
    """So the test above fails for want of space alone."""
    opened = open_run(config.model_copy(update={"workspace": str(small_disk(PAGES * 4096))}))
    record_start(opened, [], {"filler": "x" * 5000}, [], ENVIRONMENT)
    opened.lock.release()


def test_a_full_disk_leaves_a_continued_run_as_it_was(config: Config, small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(64 * 1024)
    config = config.model_copy(update={"workspace": str(disk)})
    run = start(config).run
    before = tree(run.path)
    opened = open_run(config)
    (disk / "filler").write_bytes(b"x" * 4096)
    with pytest.raises(UserError, match="No space left on device"):
        record_start(opened, [], {"filler": "x" * 20_000}, [], ENVIRONMENT)
    assert tree(run.path) == before
    assert [attempt.number for attempt in attempts(run)] == [0]
    acquire_lock(run).release()


def test_a_read_only_workspace_is_explained(config: Config, read_only_disk: Path) -> None:
    with pytest.raises(UserError, match="Read-only file system") as caught:
        open_run(config.model_copy(update={"workspace": str(read_only_disk)}))
    assert caught.value.code == ExitCode.UNFIT_MACHINE
    assert "workspace=<folder>" in str(caught.value)


def test_a_run_can_be_moved(config: Config, tmp_path: Path) -> None:
    run = start(config).run
    moved = with_value(config, "exp_name", lambda _: "second")
    shutil.move(run.path, run_directory(moved).path)
    opened = open_run(moved)
    assert opened.kind == "continue"
    opened.lock.release()


def test_run_json_is_what_jq_would_see(config: Config) -> None:
    data = json.loads(start(config).run.run_file.read_text())
    assert set(data) == {"id", "created", "what", "what_digest", "schedule_steps", "data_digest", "history"}
    assert data["what"]["optimizer.schedule_steps"] == 200


def test_damaged_metrics_are_refused_before_anything_is_written(config: Config) -> None:
    first = start(config)
    first.run.metrics_file.write_text('{"step": 1, "loss": 5.0}\nrubbish\n')
    before = tree(first.run.path)
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: this is no line of metrics"):
        open_run(with_value(config, "training.steps", lambda steps: steps + 1))
    assert tree(first.run.path) == before
    first.run.metrics_file.write_text('{"step": 1, "loss": 5.0}\n{"st')
    assert start(config).kind == "continue"
