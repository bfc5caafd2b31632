"""Constants of a device, fitted to measured steps: each a factor on what it was, as far as the measurements tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

from primus_app.config.schema import HardwareConfig
from primus_app.plan.steptime.step_time import step_time
from primus_app.plan.workload import Layout, Workload

Floats = NDArray[np.float64]

CONSTANTS: Mapping[str, tuple[str, ...]] = {
    "efficiency.gemm": ("efficiency.gemm",),
    "efficiency.gemm_fp8": ("efficiency.gemm_fp8",),
    "efficiency.attention": ("efficiency.attention_forward", "efficiency.attention_backward"),
    "efficiency.memory": ("efficiency.memory",),
    "latency_us.kernel": ("latency_us.kernel",),
    "efficiency.link": ("efficiency.link",),
    "efficiency.nic": ("efficiency.nic",),
}
"""What is fitted, and the keys of the hardware that go with it by one factor."""

NOISE = 0.02
"""Of a measured step, from one run to the next: the logarithm's standard deviation."""

DETERMINED = 0.5
"""A constant is taken as determined where the measurements leave less than this of the doubt that there was before."""

LEAST_SHARE = 0.02
"""Of a step that has to hang on a constant in some run."""

STEP = 0.01
"""Of a factor's logarithm, for derivatives."""

FARTHEST = 0.7
"""What one round may move a factor's logarithm by."""

ROUNDS = 60


@dataclass(frozen=True)
class Measured:
    """A run and the seconds of its usual step, which are known to a fraction ``noise`` of them."""

    name: str
    workload: Workload
    layout: Layout
    step_s: float
    noise: float = NOISE


@dataclass(frozen=True)
class Refitted:
    """
    Attributes:
        hardware: with the new constants.
        factors: by the names of CONSTANTS, those that the measurements determine.
        shares: of each constant the largest part of a run's step that hangs on it, and that run, before the fit.
        left: the constants that they do not determine.
    """

    hardware: HardwareConfig
    factors: Mapping[str, float]
    shares: Mapping[str, tuple[float, str]]
    left: tuple[str, ...]


def refit(hardware: HardwareConfig, runs: Sequence[Measured], doubt: float = log(2)) -> Refitted:
    """Least squares on the logarithms of the steps' times, held to what the constants were by ``doubt`` (their logarithms' deviation).

    One constant after another that is left undetermined by the others goes back to what it was, the least determined first.
    """
    names = [name for name in CONSTANTS if _value(hardware, name)]
    slopes = _slopes(hardware, names, np.zeros(len(names)), runs)
    shares = {name: _share(slopes[:, place], runs) for place, name in enumerate(names)}
    kept = [name for name in names if shares[name][0] > LEAST_SHARE]
    while kept:
        found = _fit(hardware, kept, runs, doubt)
        deviations = _deviations(_slopes(hardware, kept, found, runs) / _noise(runs), doubt) / doubt
        worst = int(np.argmax(deviations))
        if deviations[worst] < DETERMINED:
            break
        kept.pop(worst)
    found = _fit(hardware, kept, runs, doubt)
    changed = scaled(hardware, kept, found)
    factors = {name: _value(changed, name) / _value(hardware, name) for name in kept}
    return Refitted(changed, factors, shares, tuple(name for name in names if name not in kept))


def predicted(hardware: HardwareConfig, run: Measured) -> float:
    """Seconds of a step."""
    return float(step_time(run.workload, run.layout, hardware).total)


def scaled(hardware: HardwareConfig, names: Sequence[str], logs: Floats) -> HardwareConfig:
    """``hardware`` with these constants times exp(logs); no fraction above 1."""
    sections = {"efficiency": dict(hardware.efficiency), "latency_us": dict(hardware.latency_us)}
    for name, each in zip(names, logs, strict=True):
        for key in CONSTANTS[name]:
            section, _, field = key.partition(".")
            if sections[section][field] is not None:
                value = sections[section][field] * exp(float(each))
                sections[section][field] = min(value, 1.0) if section == "efficiency" else value
    changes = {name: getattr(hardware, name).model_copy(update=fields) for name, fields in sections.items()}
    return hardware.model_copy(update=changes)


def _fit(hardware: HardwareConfig, names: Sequence[str], runs: Sequence[Measured], doubt: float) -> Floats:
    """Gauss and Newton's rounds, each damped by what the constants were."""
    logs = np.zeros(len(names))
    most = np.array([_room(hardware, name) for name in names])
    measured = np.log([run.step_s for run in runs])
    for _ in range(ROUNDS if names else 0):
        slopes = _slopes(hardware, names, logs, runs) / _noise(runs)
        missing = (measured - _log_steps(scaled(hardware, names, logs), runs)) / _noise(runs)[:, 0]
        move = np.linalg.solve(slopes.T @ slopes + np.eye(len(names)) / doubt**2, slopes.T @ missing - logs / doubt**2)
        before, logs = logs, np.minimum(logs + np.clip(move, -FARTHEST, FARTHEST), most)
        if np.abs(logs - before).max() < 1e-6:
            break
    return logs


def _slopes(hardware: HardwareConfig, names: Sequence[str], logs: Floats, runs: Sequence[Measured]) -> Floats:
    """Runs x constants: how the logarithm of a step moves with that of a constant; downwards, as fractions end at 1."""
    there = _log_steps(scaled(hardware, names, logs), runs)
    columns = []
    for place in range(len(names)):
        moved = logs.copy()
        moved[place] -= STEP
        columns.append((there - _log_steps(scaled(hardware, names, moved), runs)) / STEP)
    return np.stack(columns, axis=1) if columns else np.zeros((len(runs), 0))


def _log_steps(hardware: HardwareConfig, runs: Sequence[Measured]) -> Floats:
    return np.log([predicted(hardware, run) for run in runs])


def _deviations(slopes: Floats, doubt: float) -> Floats:
    """Of the constants' logarithms; ``slopes`` are in units of the runs' noise."""
    return np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes + np.eye(slopes.shape[1]) / doubt**2)))


def _noise(runs: Sequence[Measured]) -> Floats:
    return np.array([[run.noise] for run in runs])


def _room(hardware: HardwareConfig, name: str) -> float:
    """How far the logarithm may rise: no fraction is above 1."""
    section, _, _ = name.partition(".")
    values = [getattr(getattr(hardware, section), key.partition(".")[2]) for key in CONSTANTS[name]]
    return min(-log(value) for value in values if value) if section == "efficiency" else inf


def _share(slopes: Floats, runs: Sequence[Measured]) -> tuple[float, str]:
    largest = int(np.argmax(np.abs(slopes)))
    return float(abs(slopes[largest])), runs[largest].name


def _value(hardware: HardwareConfig, name: str) -> float:
    """Of the first of the constant's keys; 0 where it is not given."""
    section, _, field = CONSTANTS[name][0].partition(".")
    return float(getattr(getattr(hardware, section), field) or 0.0)
