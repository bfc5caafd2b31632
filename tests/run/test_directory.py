"""Where things lie and what they are called."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from primus_app.config.errors import UserError
from primus_app.config.schema import Config
from primus_app.run.directory import RunDirectory, attempts, new_attempt, run_directory, unique_name


def test_the_tree_is_the_one_of_the_design_page(config: Config, tmp_path: Path) -> None:
    run = run_directory(config)
    assert run.path == tmp_path / "output" / "primus" / "ada" / "first"
    files = [run.config_file, run.overrides_file, run.plan_file, run.environment_file, run.run_file, run.native_dir, run.status_file]
    files += [run.events_file, run.metrics_file, run.attempts_dir, run.tensorboard_dir, run.checkpoints_dir]
    expected = "config.yaml overrides.yaml plan.json environment.json run.json native status.json"
    expected += " events.jsonl metrics.jsonl attempts tensorboard checkpoints"
    assert [str(file.relative_to(run.path)) for file in files] == expected.split()
    assert run.log_dir(3) == run.path / "logs/pre_trainer/rank-3"
    assert run.log_dir(0, "post") == run.path / "logs/post_trainer/rank-0"
    assert not run.path.exists(), "naming creates nothing"


def test_a_relative_workspace_does_not_move_with_the_working_directory(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_directory(config.model_copy(update={"workspace": "output"}))
    monkeypatch.chdir("/")
    assert run.path == tmp_path / "output/primus/ada/first"


def test_home_is_understood_and_an_unknown_home_is_a_users_mistake(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run_directory(config.model_copy(update={"workspace": "~/runs"})).path == tmp_path / "runs/primus/ada/first"
    with pytest.raises(UserError, match="workspace: '~nobody_here/x' names no user's home"):
        run_directory(config.model_copy(update={"workspace": "~nobody_here/x"}))


def test_unique_names_are_readable_and_differ() -> None:
    names = {unique_name("llama_tiny") for _ in range(50)}
    assert all(re.fullmatch(r"llama_tiny-\d{4}-\d{4}-[a-z]+-[a-z]+", name) for name in names)
    assert len(names) > 45  # 84 * 78 pairs of words: 50 draws repeat a pair with probability 17 %, five times with less than 1e-5
    assert "/" not in unique_name("meta-llama/Llama 3")


def test_attempts_are_numbered_from_zero_and_never_reused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert attempts(run) == []
    assert [new_attempt(run).number for _ in range(11)] == list(range(11))
    (run.attempts_dir / "4").rmdir()
    (run.attempts_dir / "notes").mkdir()
    assert new_attempt(run).number == 11
    assert [attempt.number for attempt in attempts(run)] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]  # 10 after 9: numbers, not text


def test_attempts_started_at_once_get_different_folders(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: new_attempt(run), range(40)))
    assert sorted(attempt.number for attempt in made) == list(range(40))
    assert all(attempt.dir == run.attempts_dir / str(attempt.number) for attempt in made)
