"""The snapshot: complete, equal when read back, never half."""

import json
from pathlib import Path

import pytest
import yaml

from primus_app.config.errors import UserError
from primus_app.config.schema import Config
from primus_app.run.directory import RunDirectory, new_attempt
from primus_app.run.record import read_record
from primus_app.run.snapshot import config_text, read_config, record_data_digest, write_attempt_snapshot, write_snapshot
from primus_app.run.what import fix_schedule

AWKWARD = {
    "a": "1e5",
    "b": "no",
    "c": "1_000",
    "d": "012",
    "e": 1e-8,
    "f": 1e22,
    "g": "ünï\u2028",
    "h": [1.0, {"i": None}],
    "j": "12:30",
    "k": "",
}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def test_the_configuration_loads_back_equal(config: Config, full_model: Config, tmp_path: Path) -> None:
    native = full_model.model_copy(update={"backend": full_model.backend.model_copy(update={"native": AWKWARD, "patches": ["one", "two"]})})
    for number, each in enumerate((config, full_model, native)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(config_text(each), encoding="utf-8")
        loaded = read_config(file)
        assert loaded == each
        assert loaded.model_dump() == each.model_dump()
        assert "!!" not in file.read_text(), "plain YAML"


def test_all_files_are_there_and_a_snapshot_is_never_overwritten(config: Config, run: RunDirectory) -> None:
    write_snapshot(run, fix_schedule(config), ["optimizer.lr=1e-3", "data.path='a b'"], {"world_size": 4}, ["primus", "optimizer.lr=1e-3"])
    assert sorted(path.name for path in run.path.iterdir()) == [
        "config.yaml",
        "environment.json",
        "overrides.yaml",
        "plan.json",
        "run.json",
    ]
    assert yaml.safe_load(run.overrides_file.read_text()) == ["optimizer.lr=1e-3", "data.path='a b'"]
    assert json.loads(run.plan_file.read_text()) == {"world_size": 4}
    assert json.loads(run.environment_file.read_text())["command"] == ["primus", "optimizer.lr=1e-3"]
    with pytest.raises(FileExistsError, match="never overwritten"):
        write_snapshot(run, fix_schedule(config), [], {}, [])


def test_an_attempt_has_its_own(config: Config, run: RunDirectory) -> None:
    attempt = new_attempt(run)
    write_attempt_snapshot(attempt, config, ["a=1"], {}, [], {"devices": []})
    assert sorted(path.name for path in attempt.dir.iterdir()) == ["config.yaml", "environment.json", "overrides.yaml", "plan.json"]
    assert read_config(attempt.dir / "config.yaml") == config


def test_a_plan_that_is_no_json_leaves_nothing(config: Config, run: RunDirectory) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_snapshot(run, fix_schedule(config), [], {"mfu": float("nan")}, [], {})
    assert list(run.path.iterdir()) == []


@pytest.mark.parametrize("name", ["config.yaml", "run.json"])
def test_a_name_in_the_way_leaves_only_what_was_there(config: Config, run: RunDirectory, name: str) -> None:
    (run.path / name).mkdir()
    with pytest.raises((UserError, FileExistsError)):
        write_snapshot(run, fix_schedule(config), [], {}, [], {})
    assert [path.name for path in run.path.iterdir()] == [name]


def test_the_digest_of_the_data_is_kept_the_first_time(config: Config, run: RunDirectory) -> None:
    write_snapshot(run, fix_schedule(config), [], {}, [], {})
    record_data_digest(run, "abc")
    record_data_digest(run, "abc")
    record = read_record(run)
    assert record is not None
    assert record.data_digest == "abc"
    with pytest.raises(UserError, match="the content of the data has changed since this run began: its digest was abc, now it is def"):
        record_data_digest(run, "def")


@pytest.mark.parametrize("text", ["", "model: [", "model: {}", "- 1"])
def test_a_damaged_configuration_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml: this file cannot be read"):
        read_config(tmp_path / "config.yaml")


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.yaml: this file is missing"):
        read_config(tmp_path / "config.yaml")
