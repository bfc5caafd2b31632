"""What of a configuration megatron-core cannot do: every setting is carried out or refused by name. Imports neither torch nor megatron."""

from collections.abc import Iterator

from primus_app.backends.megatron.model_support import check_model_support
from primus_app.backends.megatron.native.check import check_native
from primus_app.backends.megatron.pretrain.support import check_pretrain
from primus_app.backends.megatron.versions import check_path
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig, ParallelConfig
from primus_app.plan.mesh import Mesh

SCHEDULES = ("1f1b", "interleaved")


def check_support(config: Config, mesh: Mesh | None) -> list[Problem]:
    """All refusals, each with the way out; ``mesh`` is None where the layout does not come out anyway."""
    return [
        *check_path(config.backend),
        *check_model_support(config.model),
        *_schedule(config.parallel),
        *_latent_attention(config.model, config.parallel),
        *_experts(config.model, config.parallel),
        *(_optimizer(config.parallel, mesh) if mesh is not None else ()),
        *(_expert_replicas(config.parallel, mesh) if mesh is not None and config.model.moe else ()),
        *(check_native(config, mesh) if config.backend.runner == "core" else ()),
        *(check_pretrain(config, mesh) if config.backend.runner == "pretrain" else ()),
    ]


def _schedule(parallel: ParallelConfig) -> Iterator[Problem]:
    if parallel.schedule not in SCHEDULES:
        what = f"megatron-core has no {parallel.schedule} schedule"
        yield Problem("parallel.schedule", what, (f"parallel.schedule={' or '.join(SCHEDULES)}",))


def _latent_attention(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
    if model.mla is not None and model.moe is None and parallel.tp > 1 and not parallel.sequence_parallel:
        what = "false: megatron-core sums the gradients of latent attention over tp only with the sequence divided too"
        yield Problem("parallel.sequence_parallel", what, ("leave it out",))


def _experts(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
    if model.moe is None:
        if parallel.etp != 1:
            yield Problem("parallel.etp", "has no effect on a model without experts", ("leave it out",))
        return
    if parallel.tp > 1 and not parallel.sequence_parallel:
        what = "false: megatron-core trains experts under tensor parallelism only with the sequence divided too"
        yield Problem("parallel.sequence_parallel", what, ("leave it out",))
    biased = model.moe.expert_bias_terms
    if parallel.etp > 1 and biased:
        what = f"is {parallel.etp}: megatron-core shares an expert among ranks only where it has no biases"
        yield Problem("parallel.etp", what, (f"parallel.etp=1 parallel.ep={parallel.etp} gives each rank whole experts",))
    if parallel.tp > 1 and parallel.etp == 1 and parallel.ep == 1:
        what = (
            f"is 1 with tp {parallel.tp} and ep 1, where megatron-core 0.16 does not sum the experts' gradients over tp and so trains wrong"
        )
        yield Problem("parallel.etp", what, (*(() if biased else (f"parallel.etp={parallel.tp}",)), f"parallel.ep={parallel.tp}"))


def _optimizer(parallel: ParallelConfig, mesh: Mesh) -> Iterator[Problem]:
    """Megatron has no sharded weights: dp_shard is what its distributed optimizer shards over."""
    where, shards = "parallel.distributed_optimizer", mesh.dp_shard * mesh.cp
    if mesh.dp_shard > 1 and parallel.distributed_optimizer is False:
        what = f"false, but parallel.dp_shard is {mesh.dp_shard}, and nothing else of megatron-core shards over data parallel ranks"
        yield Problem(where, what, ("leave it out", "parallel.dp_replicate=auto parallel.dp_shard=1 keeps all states on each rank"))
    if parallel.distributed_optimizer is True and shards == 1:
        what = f"has no effect: parallel.dp_shard x cp is 1{f' (dp_replicate is {mesh.dp_replicate})' if mesh.dp > 1 else ''}"
        fix = (
            "leave it out",
            *(("parallel.dp_replicate=1 parallel.dp_shard=auto shards over all data parallel ranks",) if mesh.dp > 1 else ()),
        )
        yield Problem(where, what, fix)


def _expert_replicas(parallel: ParallelConfig, mesh: Mesh) -> Iterator[Problem]:
    """Megatron divides the ranks that hold the same experts among the replicas of the distributed optimizer."""
    ranks = mesh.dp * mesh.cp * mesh.tp // (mesh.ep * mesh.etp)
    if mesh.dp_shard > 1 and ranks % mesh.dp_replicate:
        what = f"{mesh.dp_replicate} does not divide the {ranks} ranks that hold the same experts, among which megatron-core divides them"
        yield Problem("parallel.dp_replicate", what, ("parallel.dp_replicate=1 parallel.dp_shard=auto",))
