"""The verb tune-hardware: the constants of a device from what finished runs took."""

import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from typing import Any, NoReturn

import yaml
from rich import box
from rich.table import Table

from primus_app.cli.measured_runs import SPREAD, MeasuredRun, measured_run, runs_in
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.schema import HardwareConfig
from primus_app.config.typed import typed
from primus_app.plan.console import PageConsole
from primus_app.plan.estimate.time import time_unknown
from primus_app.plan.steptime.refit import CONSTANTS, LEAST_SHARE, Refitted, predicted, refit
from primus_app.run.clock import utc_now

USAGE = "primus tune-hardware RUN… [--output FILE.yaml]"

ASSUMED = {
    "hbm_tb_s": 0.01,
    "link_gb_s": 2.0,
    "nic_gb_s": 1.0,
    "latency_us": {"kernel": 5.0, "link": 50.0, "nic": 100.0},
    "efficiency": {"gemm": 0.2, "attention_forward": 0.125, "attention_backward": 0.125, "memory": 0.5, "link": 0.5, "nic": 0.5},
}
"""Where a CPU's file says nothing: orders of magnitude, of which the runs are to tell more."""

PEAK_OVER_REACHED = 8.0
"""The peak of a CPU is taken as so many times the model FLOPs that the fastest run reached; gemm is a fraction of it.

Small models spend most of a step elsewhere, so that their matrix products reach several times the mean: with less room gemm ends at 1.
"""

CPU_DOUBT = log(8)
"""How far its constants may be from those orders of magnitude, in logarithms."""


def run_tune_hardware(argv: Sequence[str]) -> ExitCode:
    """Print what the runs say of their hardware, or write it.

    Raises:
        UserError: with everything that is wrong with the runs or the file.
    """
    folders, output = _parse(argv)
    runs, problems = _read(folders)
    problems += _problems(runs, output)
    if problems:
        raise UserError(problems)
    before, is_assumed = _with_assumed(runs)
    found = refit(before, [run.measured for run in runs], *((CPU_DOUBT,) if is_assumed else ()))
    _print(before, found, runs)
    if output is None:
        print("as overrides: " + " ".join(_overrides(runs[-1].config.hardware, found.hardware)))
    else:
        _write(output, found, runs, is_assumed)
    return ExitCode.DONE


def _parse(argv: Sequence[str]) -> tuple[list[Path], Path | None]:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--output")

    def refuse(message: str) -> NoReturn:
        raise UserError(Problem("tune-hardware", message, (USAGE,)))

    parser.error = refuse  # type: ignore[method-assign]
    arguments = parser.parse_args(list(argv))
    if not arguments.runs:
        raise UserError(Problem("tune-hardware", "needs the directories of finished runs", (USAGE,)))
    output = None if arguments.output is None else Path(arguments.output).expanduser().absolute()
    return [Path(run).expanduser().absolute() for run in arguments.runs], output


def _read(folders: Sequence[Path]) -> tuple[list[MeasuredRun], list[Problem]]:
    """Each run once, however often it was named."""
    runs: list[MeasuredRun] = []
    problems: list[Problem] = []
    for run in dict.fromkeys(run.resolve() for folder in folders for run in runs_in(folder)):
        try:
            runs.append(measured_run(run))
        except UserError as error:
            problems += error.problems
    return runs, problems


def _problems(runs: Sequence[MeasuredRun], output: Path | None) -> Iterator[Problem]:
    names = sorted({run.config.hardware.name for run in runs})
    if len(names) > 1:
        what = f"these runs are of different hardware: {', '.join(names)}"
        yield Problem("tune-hardware", what, ("give the runs of one at a time",))
    for run in runs:
        missing = time_unknown(run.config)
        if missing and run.config.hardware.vendor != "cpu":
            yield Problem(
                run.measured.name, f"its hardware {run.config.hardware.name} has no {', '.join(missing)} to begin with", ("add it",)
            )
    if output is not None and output.suffix != ".yaml":
        yield Problem("--output", f"{output.name} is no file of conf/hardware", ("end it in .yaml: hardware/mine.yaml",))
    elif output is not None and output.exists():
        yield Problem("--output", f"{output} exists already, and nothing is overwritten", ("choose another name",))
    elif output is not None and not output.parent.is_dir():
        yield Problem("--output", f"{output.parent} is no folder", ("make it first",))


def _with_assumed(runs: Sequence[MeasuredRun]) -> tuple[HardwareConfig, bool]:
    """The hardware of the last run; a CPU's figures are filled in where it has none."""
    hardware = runs[-1].config.hardware
    if not any(time_unknown(run.config) for run in runs):
        return hardware, False
    reached = max(_flops_per_s(run) for run in runs) * PEAK_OVER_REACHED / 1e12
    peak = {name: getattr(hardware.peak_tflops, name) or float(f"{reached:.3g}") for name in ("fp32", "bf16")}
    given = hardware.model_dump()
    values = ASSUMED | {"devices_per_node": max(run.mesh.devices_per_node for run in runs)}
    filled = {name: _filled(given[name], value) for name, value in values.items()}
    peaks = {**given["peak_tflops"], **peak}
    return HardwareConfig.model_validate({**given, **filled, "peak_tflops": peaks}), True


def _filled(given: Any, assumed: Any) -> Any:
    """What is given, where it is; 0 is the schema's default for latencies and means nothing."""
    if isinstance(assumed, dict):
        return {**given, **{name: given.get(name) or value for name, value in assumed.items()}}
    return given or assumed


def _flops_per_s(run: MeasuredRun) -> float:
    from primus_app.plan.parameters import training_flops_per_token

    training = run.config.training
    tokens = training.global_batch_size * training.seq_len
    return training_flops_per_token(run.config.model, training.seq_len) * tokens / run.measured.step_s / run.mesh.world


def _print(before: HardwareConfig, found: Refitted, runs: Sequence[MeasuredRun]) -> None:
    console = PageConsole()
    style = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table("constant", "before", "after", "what tells it", box=style, pad_edge=False, highlight=False)
    for name in found.shares:
        share, where = found.shares[name]
        is_told = name in found.factors
        why = f"{share:.0%} of a step of {where}" if is_told else _unknown(share, where)
        for key in CONSTANTS[name]:
            old, new = _number(before, key), _number(found.hardware, key)
            bound = ", and no fraction is above 1" if is_told and new >= 1 and key.startswith("efficiency") else ""
            table.add_row(key, f"{old:.3g}", f"{new:.3g}" if is_told else "", why + bound)
    console.print(table)
    console.print()
    steps = Table("run", "steps", "measured", "spread", "before", "after", box=style, pad_edge=False, highlight=False)
    for run in runs:
        own = run.measured
        cells = [f"{predicted(hardware, own) / own.step_s - 1:+.1%}" for hardware in (before, found.hardware)]
        steps.add_row(own.name, str(run.steps), f"{own.step_s:.4g} s", f"{run.spread:.0%}", *cells)
    console.print(steps)
    for run in runs:
        if run.spread > SPREAD:
            print(f"note: steps of {run.measured.name} differ by {run.spread:.0%}: was something else running?", file=sys.stderr)
    print()


def _unknown(share: float, run: str) -> str:
    if share < LEAST_SHARE:
        return "not told: no step hangs on it"
    return f"not told: {share:.0%} of a step of {run}, and other constants explain as much"


def _number(hardware: HardwareConfig, key: str) -> float:
    section, _, field = key.partition(".")
    return float(getattr(getattr(hardware, section), field) or 0.0)


def _figures(hardware: HardwareConfig) -> dict[str, Any]:
    """As a file of conf/hardware/ has them, with three digits where they were fitted."""
    values = hardware.model_dump(exclude_none=True)
    for section in ("efficiency", "latency_us"):
        values[section] = {name: float(f"{value:.3g}") for name, value in values[section].items()}
    return values


def _overrides(before: HardwareConfig, after: HardwareConfig) -> Iterator[str]:
    old, new = before.model_dump(), _figures(after)
    for name, value in new.items():
        if isinstance(value, dict):
            yield from (f"hardware.{name}.{key}={each}" for key, each in value.items() if old[name].get(key) != each)
        elif old[name] != value:
            yield f"hardware.{name}={value}"


def _write(output: Path, found: Refitted, runs: Sequence[MeasuredRun], is_assumed: bool) -> None:
    named = ", ".join(run.measured.name for run in runs)
    lines = [f"# {runs[-1].config.hardware.name}, with what runs of {utc_now()[:10]} took: {named}."]
    lines.append(f"# Fitted: {', '.join(found.factors) or 'nothing'}.")
    versions = sorted({version for run in runs for version in run.versions})
    if versions:
        lines.append(f"# Versions: {', '.join(versions)}.")
    if is_assumed:
        lines.append(
            "# Assumed, as no data sheet says it: the peak, eight times what the fastest of them reached; and all that is not fitted."
        )
    values = {**_figures(found.hardware), "name": output.stem}
    try:
        output.write_text("\n".join(lines) + "\n" + yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise UserError(Problem("--output", f"{output} cannot be written: {error.strerror}", ("choose another place",))) from None
    folder = output.parent.parent if output.parent.name == "hardware" else output.parent
    print(f"written         {output}")
    if output.parent.name == "hardware":
        print(f"use it          {typed('hardware', output.stem)} --config-dir {shlex.quote(str(folder))}")
    else:
        print("use it          from a folder named hardware, whose parent --config-dir names")
