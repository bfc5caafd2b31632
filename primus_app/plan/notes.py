"""What is no mistake and yet worth knowing before a run starts."""

from primus_app.config.schema import Config
from primus_app.plan.mesh import Mesh

AUTO = "auto"
"""The layout that a search has filled in."""

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard")


def notes(config: Config, mesh: Mesh | None) -> list[str]:
    """One sentence each; ``mesh`` is None where the layout does not come out."""
    is_chosen = config.parallel.name == AUTO and config.training.micro_batch_size != AUTO
    found = [_chosen(config)] if is_chosen and mesh is not None else []
    if config.model.init == "native" and config.checkpoint.load is None and mesh is not None and mesh.world > 1:
        found.append(
            f"model.init=native on {mesh.world} ranks: the engine draws each rank's weights by itself, so another layout begins with "
            "others and gives another curve; model.init=seeded does not"
        )
    return found


def _chosen(config: Config) -> str:
    from primus_app.plan.estimate.time import time_unknown

    parallel, training = config.parallel, config.training
    degrees = ", ".join(f"{name} {value}" for name in DEGREES if (value := getattr(parallel, name)) != 1) or "one device"
    recompute = "" if training.recompute == "none" else f", recompute {training.recompute}"
    why = "the fastest that is predicted to fit"
    if time_unknown(config) or config.hardware.memory_gb is None:
        why = f"of those that fit the one that divides the model least, as {config.hardware.name} has no figures for a time"
    return f"parallel=auto is {degrees}, micro batch {training.micro_batch_size}{recompute}: {why}"
