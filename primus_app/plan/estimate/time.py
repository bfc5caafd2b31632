"""How long a run will take and what it will cost, failures included."""

from dataclasses import dataclass
from math import inf

from primus_app.config.schema import Config
from primus_app.plan.batch import Batch
from primus_app.plan.estimate.subject import layout_of, workload_of
from primus_app.plan.mesh import Mesh
from primus_app.plan.parameters import count_parameters
from primus_app.plan.reliability import DAY_S, Reliability, expect
from primus_app.plan.steptime.rates import missing_constants
from primus_app.plan.steptime.schedules import Event
from primus_app.plan.steptime.step_time import StepTime, step_time, timeline

PARTS = ("compute", "tp", "cp", "ep", "dp", "pp", "bubble", "optimizer")
"""Of StepTime, in the order in which they are shown."""

CHECKPOINT_BYTES = 12
"""Of each weight in a checkpoint: float32 weight and two moments."""

HOST_GB_S = 20.0
"""Copying from a device to its host, which is all that training waits for under checkpoint.async: PCIe 4.0 x16, as it is reached."""


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds, tokens and device hours.

    Attributes:
        step: a step and its parts.
        duration_s: all steps, without failures and checkpoints.
        with_failures_s: the same with them; infinite where failures leave no time to get ahead.
        device_hours: of all devices for ``with_failures_s``.
        cost: in the currency of hardware.price_per_hour; None where that is not given.
        write_s: what training waits for at one checkpoint.
        reliability: of all nodes over the run.
    """

    step: StepTime
    duration_s: float
    with_failures_s: float
    device_hours: float
    cost: float | None
    write_s: float
    reliability: Reliability
    tokens_per_day: float


def time_unknown(config: Config) -> tuple[str, ...]:
    """Keys without which no time can be given; empty where it can."""
    return missing_constants(config.hardware, workload_of(config))


def estimate_time(config: Config, mesh: Mesh, batch: Batch) -> TimeEstimate:
    """Of hardware for which ``time_unknown`` is empty."""
    step = step_time(workload_of(config), layout_of(config, mesh, batch), config.hardware)
    total = float(step.total)
    duration = total * batch.steps
    assumed, write = config.plan, write_s(config, mesh)
    interval = config.checkpoint.every * total if config.checkpoint.every else inf
    reliability = expect(mesh.nodes, assumed.failures_per_node_day, assumed.restart_s, interval, write, duration)
    whole = duration / reliability.effective if reliability.effective > 0 else inf
    hours = mesh.world * whole / 3600
    price = config.hardware.price_per_hour
    return TimeEstimate(
        step=step,
        duration_s=duration,
        with_failures_s=whole,
        device_hours=hours,
        cost=None if price is None else price * hours,
        write_s=write,
        reliability=reliability,
        tokens_per_day=batch.tokens_per_step / total * DAY_S,
    )


def write_s(config: Config, mesh: Mesh) -> float:
    """Seconds of one checkpoint: every node writes its part at plan.checkpoint_gb_s; in the background, only the copy to the host."""
    num_bytes = CHECKPOINT_BYTES * count_parameters(config.model).total
    if config.checkpoint.async_:
        return num_bytes / mesh.world / (HOST_GB_S * 1e9)
    return num_bytes / mesh.nodes / (config.plan.checkpoint_gb_s * 1e9)


def events(config: Config, mesh: Mesh, batch: Batch) -> list[Event]:
    """The timeline of the pipeline's ranks in one step."""
    return timeline(workload_of(config), layout_of(config, mesh, batch), config.hardware)
