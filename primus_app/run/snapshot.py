"""Writing down, before anything starts, all that it takes to do the same again."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import Config
from primus_app.run.directory import Attempt, RunDirectory
from primus_app.run.environment import describe_environment
from primus_app.run.files import TEMPORARY_PREFIX, explain_os_errors, json_text, parse_file, sync_folder, write_new_file
from primus_app.run.record import new_record, read_record, record_text, write_record
from primus_app.run.what import plain

STAGING = TEMPORARY_PREFIX + "snapshot"
"""Folder that the snapshot is written in; while it stands, the files beside it are not yet a run."""

ATTEMPT_FILES = ("config.yaml", "overrides.yaml", "plan.json", "environment.json")
SNAPSHOT_FILES = (*ATTEMPT_FILES, "run.json")
"""In the order in which they appear: run.json, which makes the folder a run, comes last."""


def write_snapshot(
    run: RunDirectory,
    config: Config,
    overrides: Sequence[str],
    plan: dict[str, Any],
    command: Sequence[str],
    environment: dict[str, Any] | None = None,
) -> None:
    """Write config.yaml, overrides.yaml, plan.json, environment.json and run.json of a new run, all or none.

    ``config`` is open_run's (schedule_steps filled). ``environment`` is describe_environment()'s, taken here when None.
    UserError (code 3) when the disk is full or read-only; then nothing of it stays.
    """
    if run.run_file.exists():
        raise FileExistsError(f"{run.run_file}: a snapshot is never overwritten")
    texts = _texts(config, overrides, plan, command, environment) | {"run.json": record_text(new_record(config))}
    with explain_os_errors(run.path, "writing the snapshot of the run"):
        _write_all(run.path, texts)


def write_attempt_snapshot(
    attempt: Attempt,
    config: Config,
    overrides: Sequence[str],
    plan: dict[str, Any],
    command: Sequence[str],
    environment: dict[str, Any] | None = None,
) -> None:
    """The same without run.json into attempts/N/, since each attempt has its own *how*; all or none."""
    with explain_os_errors(attempt.dir, "writing the snapshot of the attempt"):
        _write_all(attempt.dir, _texts(config, overrides, plan, command, environment))


def read_config(path: Path) -> Config:
    """The Config in a config.yaml that we wrote; UserError when the file is missing or damaged."""
    config = parse_file(path, _parse_config)
    if config is None:
        raise UserError(Problem(str(path), "this file is missing", ("restore it from a copy, or start anew with exp_name=<another name>",)))
    return config


def _parse_config(text: str) -> Config:
    try:
        return Config.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def record_data_digest(run: RunDirectory, digest: str) -> None:
    """The content of the data counts as *what*: kept the first time; another one later is a UserError."""
    record = read_record(run)
    if record is None:
        raise ValueError(f"{run.run_file} must exist before its data is known")
    if record.data_digest is None:
        write_record(run, replace(record, data_digest=digest))
    elif record.data_digest != digest:
        what = f"the content of the data has changed since this run began: its digest was {record.data_digest}, now it is {digest}"
        fix = ("bring the old data back (data.path, data.cache_dir)", "or start another run with exp_name=<another name>")
        raise UserError(Problem(str(run.path), what, fix))


def config_text(config: Config) -> str:
    """The resolved configuration as plain YAML that loads back to an equal Config."""
    return yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True, width=140)


def is_leftover(name: str, names: Sequence[str]) -> bool:
    """Whether ``name`` among a folder's ``names`` is what an interrupted start of ours leaves behind."""
    return name == ".lock" or name.startswith(TEMPORARY_PREFIX) or (STAGING in names and name in SNAPSHOT_FILES)


def remove_leftovers(folder: Path) -> None:
    """Delete what an interrupted start left in a folder that is no run yet; the lock's file stays."""
    names = sorted(os.listdir(folder), key=lambda name: name == STAGING)  # its marker goes last
    for name in names:
        if name != ".lock" and is_leftover(name, names):
            remove(folder / name)


def remove_snapshot(run: RunDirectory) -> None:
    """Take back write_snapshot: run.json, which makes the folder a run, goes first."""
    for name in reversed(SNAPSHOT_FILES):
        remove(run.path / name)


def _texts(
    config: Config, overrides: Sequence[str], plan: dict[str, Any], command: Sequence[str], environment: dict[str, Any] | None
) -> dict[str, str]:
    described = describe_environment(command=command) if environment is None else environment
    return {
        "config.yaml": config_text(config),
        "overrides.yaml": yaml.safe_dump(list(overrides), allow_unicode=True, width=10_000),
        "plan.json": json_text(plan),
        "environment.json": json_text(described),
    }


def _write_all(folder: Path, texts: dict[str, str]) -> None:
    """Write aside first, where a full disk shows; then move, the last of ``texts`` last."""
    staging = folder / STAGING
    moved: list[Path] = []
    try:
        staging.mkdir()
        for name, text in texts.items():
            write_new_file(staging / name, text)
        for name in texts:
            os.rename(staging / name, folder / name)
            moved.append(folder / name)
        staging.rmdir()
        sync_folder(folder)
    except BaseException:
        for path in (*reversed(moved), staging):
            remove(path)
        raise


def remove(path: Path) -> None:
    """Delete a file or a whole folder; nothing happens where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
