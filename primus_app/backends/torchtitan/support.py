"""What of a configuration TorchTitan cannot do: every setting is carried out or refused by name. Imports no torch."""

from collections.abc import Iterator

from primus_app.backends.torchtitan.model_support import check_model_support
from primus_app.backends.torchtitan.native import check_native
from primus_app.config.errors import Problem
from primus_app.config.schema import BackendConfig, Config, ModelConfig, ParallelConfig
from primus_app.plan.mesh import Mesh
from primus_app.plan.neighbours import nearest_multiples, offer

BLOCK = 128
"""Tokens of one block of a FlexAttention mask in torch."""


def check_support(config: Config, mesh: Mesh | None) -> list[Problem]:
    """All refusals, each with the way out; ``mesh`` is None where the layout does not come out anyway."""
    model = config.model
    return [
        *check_model_support(model, pp=config.parallel.pp),
        *_sharded_optimizer(config.parallel),
        *_megatron_only(config.backend),
        *_experts(config, mesh),
        *_context(config),
        *_init(model),
        *_checkpoints(config),
        *check_native(config, mesh),
    ]


def _sharded_optimizer(parallel: ParallelConfig) -> list[Problem]:
    if parallel.distributed_optimizer == "auto":
        return []
    what = "has no effect on backend=torchtitan, which shards the optimizer with the weights"
    return [Problem("parallel.distributed_optimizer", what, ("leave it out and choose parallel=fsdp",))]


def _megatron_only(backend: BackendConfig) -> Iterator[Problem]:
    no_effect = "has no effect on backend=torchtitan"
    if backend.runner != "core":
        yield Problem("backend.runner", no_effect, ("leave it out, or choose backend=megatron",))
    if backend.megatron_path is not None:
        yield Problem("backend.megatron_path", no_effect, ("leave it out, or choose backend=megatron",))


def _experts(config: Config, mesh: Mesh | None) -> list[Problem]:
    """TorchTitan shards experts over tp, as it does all matrices, until ep divides them as a whole among ranks."""
    parallel = config.parallel
    if config.model.moe is None:
        no_effect = "has no effect on a model without experts"
        return [Problem("parallel.etp", no_effect, ("leave it out",))] if parallel.etp != 1 else []
    wanted = parallel.tp if parallel.ep == 1 else 1
    if parallel.etp != wanted:
        what = f"is {parallel.etp}; TorchTitan's experts are {'sharded over tp' if parallel.ep == 1 else 'whole'} with ep {parallel.ep}"
        return [Problem("parallel.etp", what, (f"parallel.etp={wanted}",))]
    if mesh is None or mesh.dp_shard * mesh.cp * mesh.tp % mesh.ep == 0:
        return []
    ranks = f"dp_shard {mesh.dp_shard} x cp {mesh.cp} x tp {mesh.tp} = {mesh.dp_shard * mesh.cp * mesh.tp}"
    return [Problem("parallel.ep", f"{mesh.ep} does not divide {ranks}, the ranks that TorchTitan divides experts among", ())]


def _context(config: Config) -> list[Problem]:
    cp, seq_len = config.parallel.cp, config.training.seq_len
    unit = BLOCK * cp
    if cp == 1 or seq_len % unit == 0:
        return []
    what = f"{seq_len} is not divisible by {BLOCK} x cp {cp} = {unit}: TorchTitan divides a sequence among cp ranks in blocks of {BLOCK}"
    return [Problem("training.seq_len", what, offer("training.seq_len", nearest_multiples(unit, seq_len)))]


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
