"""Relative errors of predicted memory and step time, run by run, and their summary."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from published_rows import Run, run_of

from primus_app.plan.memory.stage_memory import worst_memory
from primus_app.plan.steptime.step_time import step_time

LIMITS: dict[str, tuple[float, float | None]] = {
    "allocated": (0.03, 0.10),
    "reserved": (0.08, 0.15),
    "step time, dense": (0.08, None),
    "step time, experts": (0.12, None),
}
"""Most that the mean and the worst error may be; what a source gives as used of the device counts with reserved bytes."""


@dataclass(frozen=True)
class Error:
    """A relative error, signed: predicted over published, less 1.

    Attributes:
        device: the hardware file's name.
        model: what runs that are layouts of the same thing have in common: model, gpu_type, length, number format.
        job: that, with the number of devices and the batch.
        device_s: published seconds of all devices for one token, of step times.
    """

    kind: str
    source: str
    device: str
    model: tuple[Any, ...]
    job: tuple[Any, ...]
    published: float
    error: float
    device_s: float


def errors_of(rows: list[dict[str, Any]]) -> tuple[list[Error], Counter[str]]:
    """The errors of all rows that can be modelled, and how many others there are by their reasons."""
    errors: list[Error] = []
    reasons = Counter[str]()
    for row in rows:
        run = run_of(row)
        if isinstance(run, Run):
            errors += _errors(row, run)
        else:
            reasons[run] += 1
    return errors, reasons


def _errors(row: dict[str, Any], run: Run) -> list[Error]:
    model = (row["model"], row["gpu_type"], row["seq_len"], row.get("dtype"))
    batch = run.workload.global_batch_size
    job = (*model, row["gpus"], batch)
    tokens = batch * run.workload.seq_len
    found = []
    if run.memory is not None:
        memory = worst_memory(run.workload, run.layout)
        predicted = float({"allocated": memory.allocated, "reserved": memory.reserved, "used": memory.total}[run.memory_kind])
        kind = "allocated" if run.memory_kind == "allocated" else "reserved"
        found.append(Error(kind, row["source"], run.hardware.name, model, job, run.memory, predicted / run.memory - 1, 0.0))
    if run.step_s is not None:
        kind = "step time, experts" if run.workload.model.moe else "step time, dense"
        predicted = float(step_time(run.workload, run.layout, run.hardware).total)
        device_s = run.step_s * row["gpus"] / tokens
        found.append(Error(kind, row["source"], run.hardware.name, model, job, run.step_s, predicted / run.step_s - 1, device_s))
    return found


def summary(errors: list[Error]) -> dict[str, dict[str, float]]:
    """By kind: number, mean of absolute errors, the worst, mean of signed errors."""
    found = {}
    for kind in LIMITS:
        values = [each.error for each in errors if each.kind == kind]
        if values:
            worst = max(values, key=abs)
            found[kind] = {
                "runs": len(values),
                "mean": sum(map(abs, values)) / len(values),
                "worst": worst,
                "bias": sum(values) / len(values),
            }
    return found


def holds(kind: str, found: dict[str, float]) -> bool:
    """Whether a kind's errors are within its limits."""
    mean, worst = LIMITS[kind]
    return found["mean"] <= mean and (worst is None or abs(found["worst"]) <= worst)
