"""--multirun: every job is checked before the first starts; Hydra's sweeper hands them out, the runs lie side by side."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from primus_app.cli.arguments import Arguments
from primus_app.cli.hydra_flags import hydra_instance
from primus_app.cli.training import check_training, hardware_name, record_and_run
from primus_app.config.compose import Request, hydra_ready
from primus_app.config.errors import ExitCode, Problem, UserError, show_problems
from primus_app.config.load import prepare_model, with_hardware
from primus_app.config.overrides import examine, override_value
from primus_app.config.schema import Config
from primus_app.launch.devices import Devices, detect_devices
from primus_app.run.directory import run_directory

OWN = ("exp_name", "hydra.sweep.dir", "hydra.sweep.subdir")
"""Keys that the sweep itself gives to its jobs."""


def run_sweep(arguments: Arguments) -> ExitCode:
    """Run all jobs one after another on this machine; the worst end is the sweep's."""
    if arguments.verb != "train":
        raise UserError(Problem("--multirun", f"has no effect on {arguments.verb}", (f"leave it out: primus {arguments.verb} …",)))
    request, devices = arguments.request, detect_devices()
    name = override_value(request.overrides, "exp_name") or f"sweep-{datetime.now():%m%d-%H%M%S}"
    typed = [text for text in request.overrides if text.partition("=")[0] not in OWN]
    folder = _folder(_check_jobs(request.with_overrides(typed), devices), name)
    codes: list[ExitCode] = []

    def job(config: Any) -> float:
        from hydra.core.hydra_config import HydraConfig

        hydra = HydraConfig.get()
        number, overrides = int(hydra.job.num), [text for text in hydra.overrides.task if text.partition("=")[0] not in OWN]
        swept = [text for text in overrides if text not in typed and not text.startswith("hardware=")]
        print(f"\njob {number}: {' '.join(swept)}", flush=True)
        codes.append(_run_job(request.with_overrides(overrides), devices, f"{name}/{job_name(number, swept)}"))
        return float(codes[-1])

    with hydra_ready():
        prepared = with_hardware(request.with_overrides(typed), hardware_name(request, devices))
        own = [f"hydra.sweep.dir='{folder}'", "hydra.sweep.subdir=."]
        hydra_instance().multirun(request.config_name, job, [*prepared.overrides, *own], with_log_configuration=False)
    print(f"\n{len(codes)} runs under {folder}")
    return max(codes, default=ExitCode.DONE)


def job_name(number: int, swept: Sequence[str]) -> str:
    """A folder's name that tells the jobs apart: 0_optimizer.lr=0.001."""
    return "_".join([str(number), *(re.sub(r"[^\w.=+-]+", "-", text) for text in swept)])[:200]


def _check_jobs(request: Request, devices: Devices) -> Config:
    """The first job's configuration, after all jobs have been checked.

    Raises:
        UserError: with the mistakes of all jobs, each once.
    """
    prepare_model(request)
    with hydra_ready():
        examined = examine(with_hardware(request, hardware_name(request, devices)), multirun=True)
    problems = [*examined.problems, *(_foreign_launcher(text) for text in request.overrides if text.startswith("hydra/launcher="))]
    found, code = {str(problem): problem for problem in problems}, ExitCode.BAD_REQUEST
    configs = []
    for overrides in _jobs(request.with_overrides(examined.good)):
        try:
            configs.append(check_training(request.with_overrides(overrides), devices).config)
        except UserError as error:
            code = error.code if not problems else code
            found |= {str(problem): problem for problem in error.problems}
    if found:
        raise UserError(list(found.values()), code)
    return configs[0]


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
        checked = check_training(request, devices)
        return record_and_run(checked, exp_name)
    except UserError as error:
        show_problems(error)
        return error.code
