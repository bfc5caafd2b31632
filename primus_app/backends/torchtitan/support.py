"""What of a configuration TorchTitan cannot do: every setting is carried out or refused by name. Imports no torch."""

from primus_app.backends.torchtitan.model_support import check_model_support
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig

ONE_ONLY = ("tp", "pp", "vpp", "cp", "ep", "etp")
"""Degrees that must be 1."""


def check_support(config: Config) -> list[Problem]:
    """All refusals, each with the way out."""
    model, balancing = config.model, config.training.load_balancing
    return [*check_model_support(model, load_balancing=balancing), *_layout(config), *_init(model), *_checkpoints(config), *_native(config)]


def _layout(config: Config) -> list[Problem]:
    parallel = config.parallel
    problems = [
        Problem(
            f"parallel.{name}",
            f"{getattr(parallel, name)} does not run on backend=torchtitan here, which trains with dp_replicate and dp_shard",
            ("choose parallel=single, parallel=dp or parallel=fsdp", "`primus plan` takes every layout"),
        )
        for name in ONE_ONLY
        if getattr(parallel, name) != 1
    ]
    if parallel.distributed_optimizer:
        problems.append(
            Problem(
                "parallel.distributed_optimizer",
                "has no effect on backend=torchtitan, which shards the optimizer with the weights",
                ("leave it out and choose parallel=fsdp",),
            )
        )
    return problems


def _init(model: ModelConfig) -> list[Problem]:
    default = ModelConfig.model_fields["init_std"].default
    if model.init != "native" or model.init_std == default:
        return []
    fix = ("model.init=seeded draws the weights with it", f"or leave it at {default}")
    return [Problem("model.init_std", "has no effect with model.init=native: TorchTitan has deviations of its own", fix)]


def _checkpoints(config: Config) -> list[Problem]:
    if config.checkpoint.every == 0 or config.checkpoint.keep != 1:
        return []
    what = "1 is too few for TorchTitan, which removes an old checkpoint only once two newer ones are there"
    return [Problem("checkpoint.keep", what, ("checkpoint.keep=2, or checkpoint.keep=0 to keep all",))]


def _native(config: Config) -> list[Problem]:
    return [
        Problem(f"backend.native.{name}", "no option of TorchTitan can be passed through", ("leave it out",))
        for name in config.backend.native
    ]
