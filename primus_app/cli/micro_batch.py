"""training.micro_batch_size=auto held against the memory: the largest that is predicted to leave some room."""

from primus_app.cli.plan_numbers import memory_of
from primus_app.config.schema import Config
from primus_app.plan.neighbours import divisors
from primus_app.plan.plan import Plan, make_plan


def with_fitting_micro_batch(config: Config, plan: Plan, local_devices: int, local_hardware: str, local_bytes: int | None) -> Config:
    """``config`` with a smaller micro batch in place of auto, where the one that auto takes would be tight or would not fit.

    Unchanged where that is no better with any: then it is said what does.
    """
    if config.training.micro_batch_size != "auto" or plan.batch is None or plan.problems:
        return config
    largest = plan.batch.micro_batch_size
    for size in sorted((size for size in divisors(plan.batch.global_batch_size) if size <= largest), reverse=True):
        other = config.model_copy(update={"training": config.training.model_copy(update={"micro_batch_size": size})})
        its = make_plan(other, local_devices=local_devices, local_hardware=local_hardware)
        memory = None if its.problems else memory_of(other, its, local_bytes)
        if memory is not None and memory.verdict in ("fits", "unknown"):
            return config if size == largest else other
    return config
