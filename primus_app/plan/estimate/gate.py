"""The gate before a launch: what is predicted not to fit is refused, what is tight is told."""

from collections.abc import Callable

from primus_app.config.errors import Problem
from primus_app.config.schema import Config
from primus_app.plan.batch import Batch
from primus_app.plan.estimate.lighter import ways_to_fit
from primus_app.plan.estimate.memory import TIGHT, MemoryEstimate, estimate_memory
from primus_app.plan.mesh import Mesh
from primus_app.plan.plan import Plan, make_plan

GIB = 2**30
OVERRIDE = "plan.allow_oom=true starts it all the same"

Legal = Callable[[Config, Plan], bool]
"""Whether the backend trains a configuration whose plan has no problems."""


def memory_problems(config: Config, plan: Plan, *, local_devices: int, local_bytes: int | None, legal: Legal) -> list[Problem]:
    """The one problem that a plan without others may have: too little memory; none where plan.allow_oom is set.

    Args:
        local_devices: as of :func:`primus_app.plan.plan.make_plan`.
        local_bytes: memory of this machine's device, or on a CPU of this machine.
        legal: what the backend does not train is not offered.
    """
    if plan.mesh is None or plan.batch is None or config.plan.allow_oom:
        return []
    found = estimate_memory(config, plan.mesh, plan.batch, local_bytes)
    if found.verdict != "does not fit":
        return []

    def needs(other: Config) -> float | None:
        its = make_plan(other, local_devices=local_devices)
        if its.problems or its.mesh is None or its.batch is None or not legal(other, its):
            return None
        memory = estimate_memory(other, its.mesh, its.batch, local_bytes)
        return None if memory.available is None else memory.needed / memory.available

    ways = ways_to_fit(config, plan.mesh, plan.batch, needs)
    if not ways and not found.on_cpu:
        ways = ["primus tune with this model, hardware and cluster.nodes=N finds layouts that fit on N nodes"]
    return [Problem("memory", sentence(config, found), (*ways, OVERRIDE))]


def memory_note(config: Config, mesh: Mesh, batch: Batch, local_bytes: int | None) -> list[str]:
    """A word on a run that is tight, or that is started although it is predicted not to fit."""
    found = estimate_memory(config, mesh, batch, local_bytes)
    if found.verdict == "does not fit":
        return [f"memory: {sentence(config, found)}; started because of plan.allow_oom=true"]
    return [f"memory: {sentence(config, found)}, above {TIGHT:.0%}"] if found.verdict == "tight" else []


def sentence(config: Config, memory: MemoryEstimate) -> str:
    """What is needed and what is there."""
    assert memory.available is not None
    if memory.on_cpu:
        return f"the processes together are predicted to need {_gib(memory.needed)}, and this machine has {_gib(memory.available)}"
    stage = f" (of pipeline stage {memory.worst})" if len(memory.stages) > 1 else ""
    has = f"{config.hardware.name} has {_gib(memory.available)}"
    return f"the fullest device{stage} is predicted to need {_gib(memory.needed)}, and {has}"


def _gib(number: float) -> str:
    return f"{number / GIB:,.1f} GiB"
