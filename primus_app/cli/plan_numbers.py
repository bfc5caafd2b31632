"""A plan with its estimates as plain data: what plan --json prints and plan.json keeps, so that a report can hold a run against them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from primus_app.config.errors import Problem
from primus_app.config.schema import Config
from primus_app.plan.estimate.memory import MemoryEstimate, estimate_memory
from primus_app.plan.plan import Plan

if TYPE_CHECKING:
    from primus_app.plan.estimate.time import TimeEstimate


def memory_of(config: Config, plan: Plan, local_bytes: int | None) -> MemoryEstimate | None:
    """None where the layout or the batch does not come out."""
    if plan.mesh is None or plan.batch is None or not plan.stages:
        return None
    return estimate_memory(config, plan.mesh, plan.batch, local_bytes)


def time_of(config: Config, plan: Plan) -> "TimeEstimate | None":
    """None where the layout does not come out, or the hardware has no figures for it, as a CPU."""
    from primus_app.plan.estimate.time import estimate_time, time_unknown

    if plan.mesh is None or plan.batch is None or not plan.stages or time_unknown(config):
        return None
    return estimate_time(config, plan.mesh, plan.batch)


def plan_numbers(config: Config, plan: Plan, local_bytes: int | None, refused: Sequence[Problem] = ()) -> dict[str, Any]:
    """``local_bytes`` is this machine's memory where it trains on its CPU; ``refused`` is what the engine has against it."""
    from primus_app.plan.estimate.numbers import memory_dict, time_dict
    from primus_app.plan.estimate.subject import again_share
    from primus_app.plan.estimate.time import time_unknown
    from primus_app.plan.flops import CONVENTIONS, flops_by_convention

    found = plan.to_dict()
    if plan.flops_per_token is not None:
        per_token = flops_by_convention(config.model, config.training.seq_len, config.training.recompute, again_share(config, plan.mesh))
        found["flops_per_token_by_convention"] = {
            name: {"flops": flops, "convention": CONVENTIONS[name]} for name, flops in per_token.items()
        }
    memory, time = memory_of(config, plan, local_bytes), time_of(config, plan)
    found["memory"] = memory_dict(memory) if memory else None
    found["time"] = time_dict(time) if time else None
    found["time_needs"] = list(time_unknown(config))
    return {**found, "refused_by_backend": [str(problem) for problem in refused]}
