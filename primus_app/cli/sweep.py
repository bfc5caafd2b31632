"""--multirun: every job is checked before the first starts; Hydra's sweeper hands them out, the runs lie side by side."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from primus_app.cli.arguments import Arguments
from primus_app.cli.hydra_flags import hydra_instance
from primus_app.cli.training import check_training, record_and_run
from primus_app.config.compose import Request, compose, composition_errors, hydra_ready, offer_huggingface, quoted, with_engine_options
from primus_app.config.errors import ExitCode, Problem, UserError, show_problems
from primus_app.config.kinds import schema_leaves
from primus_app.config.load import with_hardware
from primus_app.config.overrides import Examined, examine, examine_shape, override_value
from primus_app.config.schema import Config, ModelConfig
from primus_app.config.validate import validate
from primus_app.launch.devices import Devices, detect_devices
from primus_app.plan.neighbours import count
from primus_app.run.directory import RunDirectory, run_directory
from primus_app.run.metrics import read_metrics

BEST_TO_WORST = (ExitCode.DONE, ExitCode.STOPPED, ExitCode.UNFIT_MACHINE, ExitCode.BAD_REQUEST, ExitCode.TRAINING_FAILED)


def run_sweep(arguments: Arguments) -> ExitCode:
    """Run all jobs one after another on this machine; the worst end is the sweep's."""
    if arguments.verb != "train":
        raise UserError(
            Problem(
                "--multirun",
                f"has no effect on {arguments.verb}",
                (f"leave it out, and give each key one value: primus {arguments.verb} …",),
            )
        )
    devices = detect_devices()
    name = override_value(arguments.request.overrides, "exp_name") or f"sweep-{datetime.now():%m%d-%H%M%S}"
    request = arguments.request.with_overrides([text for text in arguments.request.overrides if not _names_the_run(text)])
    with hydra_ready(request.config_dir):
        first = _check_jobs(request, devices, _name_problems(name))
    folder = _folder(first, name)
    codes: list[ExitCode] = []
    keys = _swept_keys(request)

    def job(config: Any) -> float:
        from hydra.core.hydra_config import HydraConfig

        hydra = HydraConfig.get()
        number, overrides = int(hydra.job.num), list(hydra.overrides.task)
        swept = _swept(overrides, keys)
        own_folder = job_name(number, swept)
        print(f"\njob {number}: {' '.join(swept)}", flush=True)
        codes.append(_run_job(request.with_overrides(overrides), devices, f"{name}/{own_folder}"))
        if codes[-1] == ExitCode.STOPPED:
            raise _Stopped
        return _objective(folder / own_folder)

    _offer_any_model()
    with hydra_ready(request.config_dir), suppress(_Stopped):
        own = [f"hydra.sweep.dir={quoted(str(folder))}", "hydra.sweep.subdir=."]
        hydra_instance().multirun(request.config_name, job, [*with_engine_options(request.overrides), *own], with_log_configuration=False)
    print(f"\n{count(len(codes), 'run')} under {folder}")
    return max(codes, key=BEST_TO_WORST.index, default=ExitCode.DONE)


class _Stopped(BaseException):
    """A signal has ended a job, and with it the sweep. Not an Exception: Hydra would note it and start the next job."""


def _swept_keys(request: Request) -> set[str]:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides(list(request.overrides))
    return {override.key_or_group for override in parsed if override.is_sweep_override()}


def _objective(run: Path) -> float:
    """What a sweeper that searches minimises: the last evaluation loss, else the last loss; not a number for a run without either."""
    rows = read_metrics(RunDirectory(run))
    found = [row["eval_loss"] for row in rows if "eval_loss" in row] or [row["loss"] for row in rows if "loss" in row]
    return float(found[-1]) if found else math.nan


def _name_problems(name: str) -> list[Problem]:
    """exp_name names the folder that holds the jobs' own."""
    what = "names the whole sweep, so it has one value"
    return [Problem(f"exp_name={name}", what, ("its jobs get folders of their own",))] if "," in name else []


def _names_the_run(text: str) -> bool:
    return text.partition("=")[0].lstrip("+") == "exp_name"


def _offer_any_model() -> None:
    """Stand-ins for what a config.json says: each job reads its own when it is checked."""
    offer_huggingface(dict.fromkeys(ModelConfig.model_fields))


def job_name(number: int, swept: Sequence[str]) -> str:
    """A folder's name that tells the jobs apart: 0_optimizer.lr=0.001."""
    return "_".join([str(number), *(re.sub(r"[^\w.=+-]+", "-", text) for text in swept)])[:200]


def _check_jobs(request: Request, devices: Devices, problems: list[Problem]) -> Config:
    """The first job's configuration, after all jobs have been checked. Call inside ``hydra_ready``.

    Raises:
        UserError: with the mistakes of all jobs, each once.
    """
    _offer_any_model()
    good, jobs, problems = _examined(request, examine_shape, problems)
    config, code, more = _check_job(good.with_overrides(jobs[0]), devices)
    if more:  # A wrong key is told as it was typed, with all the values of its sweep.
        good, jobs, problems = _examined(request, examine, problems)
        config, code, more = _check_job(good.with_overrides(jobs[0]), devices)
    problems += _bad_values(good, jobs[0], devices)
    refused = {0: more} if more else {}
    for number, overrides in enumerate(jobs[1:], 1) if not problems else ():  # With mistakes known, they can wait.
        _, its_code, more = _check_job(good.with_overrides(overrides), devices)
        code = max(code, its_code, key=BEST_TO_WORST.index)
        refused |= {number: more} if more else {}
    if problems or refused or config is None:
        found = [*problems, *_of_jobs(refused, jobs, _swept_keys(good), known={str(problem) for problem in problems})]
        raise UserError(found, ExitCode.BAD_REQUEST if problems else code)
    return config


def _of_jobs(
    refused: Mapping[int, Sequence[Problem]], jobs: Sequence[Sequence[str]], keys: set[str], known: Collection[str]
) -> Iterator[Problem]:
    """Each mistake of single jobs once, with the first combination that makes it."""
    places: dict[tuple[str, str], list[int]] = {}
    first: dict[tuple[str, str], Problem] = {}
    for number, problems in refused.items():
        for problem in problems:
            name = problem.where, problem.what  # What to do about it may have the job's own values in it.
            first.setdefault(name, problem)
            places.setdefault(name, []).append(number)
    for name, problem in first.items():
        combination = " ".join(_swept(jobs[places[name][0]], keys))
        if str(problem) in known:
            continue
        others = f", and {len(places[name]) - 1} more of the sweep's {len(jobs)}" if len(places[name]) > 1 else ""
        place = (f"in job {places[name][0]}: {combination}{others}",) if combination and len(jobs) > 1 else ()
        yield replace(problem, fix=(*problem.fix, *place))


def _swept(overrides: Sequence[str], keys: set[str]) -> list[str]:
    """Those of a job's overrides that the sweep varies."""
    return [text.lstrip("+") for text in overrides if text.partition("=")[0].lstrip("+") in keys]


def _examined(request: Request, look: Callable[..., Examined], problems: list[Problem]) -> tuple[Request, list[list[str]], list[Problem]]:
    """The request without its mistakes, its jobs' overrides, and the mistakes."""
    examined = look(request, multirun=True)
    foreign = (_foreign_launcher(text) for text in request.overrides if text.startswith("hydra/launcher="))
    good = request.with_overrides(examined.good)
    return good, _jobs(good), list(dict.fromkeys((*problems, *examined.problems, *foreign)))


def _check_job(request: Request, devices: Devices) -> tuple[Config | None, ExitCode, Sequence[Problem]]:
    try:
        return check_training(request, devices).config, ExitCode.DONE, ()
    except UserError as error:
        return None, error.code, error.problems


def _bad_values(request: Request, first: Sequence[str], devices: Devices) -> list[Problem]:
    """What is wrong with the swept values, each looked at in the place of the first job's."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    parsed = parser.parse_overrides(list(request.overrides))
    swept = [override for override in parsed if override.is_discrete_sweep() and override.key_or_group in schema_leaves()]
    problems: list[Problem] = []
    with suppress(*composition_errors()):
        data = compose(with_hardware(request.with_overrides(first), devices.option)) if swept else {}
        for override in swept:
            for text in override.sweep_string_iterator():
                value = parser.parse_override(f"{override.key_or_group}={text}").value()
                found = validate(_with_value(data, override.key_or_group, value))
                problems += [problem for problem in found if problem.where == override.key_or_group] if isinstance(found, list) else []
    return problems


def _with_value(data: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    name, _, rest = key.partition(".")
    return {**data, name: _with_value(data.get(name) or {}, rest, value) if rest else value}


def _jobs(request: Request) -> list[list[str]]:
    """The overrides of each job; only the first where a sweeper of the user's own decides later jobs by earlier ones."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        batches = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(list(request.overrides)), None)
    except HydraException as error:
        if any(text.startswith("hydra/sweeper=") for text in request.overrides):
            return [[text for text in request.overrides if "(" not in text]]
        raise UserError(Problem("--multirun", " ".join(str(error).split()))) from None
    return [[text for text in job if not text.startswith("hydra")] for job in batches[0]]


def _foreign_launcher(text: str) -> Problem:
    return Problem(text, "the jobs of a sweep are started by cluster=…, not by a launcher of Hydra", ("leave it out",))


def _folder(config: Config, name: str) -> Path:
    return run_directory(config.model_copy(update={"exp_name": name})).path


def _run_job(request: Request, devices: Devices, exp_name: str) -> ExitCode:
    """One job; its refusal is shown and the sweep goes on."""
    try:
        checked = check_training(request, devices, exp_name)
        return record_and_run(checked, exp_name)
    except UserError as error:
        show_problems(error)
        return error.code
