"""What is no mistake and yet worth knowing before a run starts."""

from primus_app.config.schema import Config
from primus_app.plan.plan import Plan

GIB = 2**30
AUTO = "auto"
"""The layout that a search has filled in."""

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard")


def notes(config: Config, plan: Plan, last: Config | None = None) -> list[str]:
    """One sentence each.

    Args:
        last: of a run that was started before with parallel=auto.
    """
    mesh = plan.mesh
    is_chosen = config.parallel.name == AUTO and config.training.micro_batch_size != AUTO
    found = [_chosen(config, plan, last)] if is_chosen and mesh is not None else []
    if config.model.init == "native" and config.checkpoint.load is None and mesh is not None and mesh.world > 1:
        found.append(
            f"model.init=native on {mesh.world} ranks: the engine draws each rank's weights by itself, so another layout begins with "
            "others and gives another curve; model.init=seeded does not"
        )
    return found


def layout_of_config(config: Config) -> dict[str, int | str]:
    """All that a search decides, by the words of the configuration."""
    degrees = {name: getattr(config.parallel, name) for name in DEGREES}
    return degrees | {name: getattr(config.training, name) for name in ("micro_batch_size", "recompute")}


def _chosen(config: Config, plan: Plan, last: Config | None) -> str:
    return f"parallel=auto is {_words(config)}: {_why(config, last)}{_predicted(config, plan)}"


def _words(config: Config) -> str:
    parallel, training = config.parallel, config.training
    degrees = ", ".join(f"{name} {value}" for name in DEGREES if (value := getattr(parallel, name)) != 1) or "one device"
    recompute = "" if training.recompute == "none" else f", recompute {training.recompute}"
    return f"{degrees}, micro batch {training.micro_batch_size}{recompute}"


def _why(config: Config, last: Config | None) -> str:
    from primus_app.plan.estimate.time import time_unknown

    if last is not None and layout_of_config(last) == layout_of_config(config):
        return "as at the run's last start"
    why = "the fastest that is predicted to fit"
    if time_unknown(config) or config.hardware.memory_gb is None:
        why = f"of those that fit the one that divides the model least, as {config.hardware.name} has no figures for a time"
    return why if last is None else f"{why}; at the run's last start it was {_words(last)}"


def _predicted(config: Config, plan: Plan) -> str:
    from primus_app.plan.estimate.memory import estimate_memory
    from primus_app.plan.estimate.render_time import duration
    from primus_app.plan.estimate.time import estimate_time, time_unknown

    if plan.mesh is None or plan.batch is None or not plan.stages:
        return ""
    memory = estimate_memory(config, plan.mesh, plan.batch, None)
    told = f"{memory.needed / GIB:,.1f} GiB {'for all processes' if memory.on_cpu else 'on the fullest device'}"
    if not time_unknown(config):
        told = f"{duration(float(estimate_time(config, plan.mesh, plan.batch).step.total))} a step, {told}"
    return f"; predicted: {told}"
