"""Finished runs as measurements: what a usual step of each took."""

import json
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import median, quantiles

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import Config
from primus_app.plan.estimate.subject import layout_of, workload_of
from primus_app.plan.mesh import Mesh
from primus_app.plan.plan import make_plan
from primus_app.plan.steptime.refit import NOISE, Measured
from primus_app.run.directory import RunDirectory
from primus_app.run.events import Event, read_events
from primus_app.run.files import parse_file
from primus_app.run.metrics import read_metrics
from primus_app.run.record import read_record
from primus_app.run.snapshot import read_config
from primus_app.run.status import State, read_status

WARM_UP = 5
"""Steps of an attempt that are left out: caches fill, kernels are compiled and chosen."""

FEWEST = 5
"""Steps that have to be left."""

RUN_FILE = RunDirectory(Path()).run_file.name
ENGINES = {"torchtitan": "torchtitan", "megatron": "megatron-core"}
"""The package of each backend."""

SPREAD = 0.2
"""Between the quarters of a run's steps, over their median, above which the run was disturbed."""


@dataclass(frozen=True)
class MeasuredRun:
    """``spread`` is the distance between the quarters of its steps over their median, ``steps`` how many count.

    ``versions`` are of this program and of what trained, as the run's environment.json has them.
    """

    config: Config
    mesh: Mesh
    measured: Measured
    spread: float
    steps: int
    versions: tuple[str, ...]


def runs_in(folder: Path) -> list[Path]:
    """The run itself, or all runs below a workspace or a sweep's folder, by name; the folder where there is none."""
    if (folder / RUN_FILE).exists() or not folder.is_dir():
        return [folder]
    return sorted(file.parent for file in folder.rglob(RUN_FILE)) or [folder]


def measured_run(path: Path) -> MeasuredRun:
    """The last attempt of the run at ``path``.

    Raises:
        UserError: for a folder that is no run, one that has not ended by itself, or has too few steps.
    """
    run, where = RunDirectory(path), str(path)
    if not path.is_dir() or read_record(run) is None:
        what = "is no run of this program" if path.exists() else "no such folder"
        raise UserError(Problem(where, what, ("give run directories, as train prints them, or a folder of them",)))
    status = read_status(run)
    if status is None or status.state is not State.COMPLETED:
        raise UserError(Problem(where, f"has not completed: it is {status.state if status else 'not started'}", ("give finished runs",)))
    attempt = run.attempts_dir / str(status.attempt or 0)
    config = read_config(attempt / "config.yaml")
    seconds = _steps(run)
    if len(seconds) < FEWEST:
        what = f"has {len(seconds)} steps to measure after {WARM_UP} of warming up"
        raise UserError(Problem(where, what, (f"give runs of at least {WARM_UP + FEWEST} logged steps in their last start",)))
    plan = make_plan(config, local_devices=int(config.cluster.devices_per_node))
    if plan.mesh is None or plan.batch is None:
        raise UserError([Problem(where, f"{each.where}: {each.what}") for each in plan.problems])
    middle = median(seconds)
    first, _, third = quantiles(seconds, n=4)
    spread = (third - first) / middle
    noise = max(NOISE, spread / sqrt(len(seconds)))
    measured = Measured(path.name, workload_of(config), layout_of(config, plan.mesh, plan.batch), middle, noise)
    return MeasuredRun(config, plan.mesh, measured, spread, len(seconds), _versions(attempt / "environment.json", config))


def _steps(run: RunDirectory) -> list[float]:
    """Of the last attempt, without its first steps."""
    starts = [event["time"] for event in read_events(run) if event["event"] == Event.STARTED]
    since = starts[-1] if starts else ""
    found = [row["step_time_s"] for row in read_metrics(run) if "step_time_s" in row and row["time"] >= since]
    return found[WARM_UP:]


def _versions(file: Path, config: Config) -> tuple[str, ...]:
    """Empty where the file does not say."""
    packages = (parse_file(file, json.loads) or {}).get("packages", {})
    names = ("primus-app", "torch", ENGINES[config.backend.name])
    return tuple(f"{name} {packages[name]}" for name in names if name in packages)
