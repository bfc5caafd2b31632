"""A configuration as the estimates see it."""

from typing import Literal

from primus_app.config.schema import Config
from primus_app.plan.batch import Batch
from primus_app.plan.mesh import Mesh
from primus_app.plan.workload import RECOMPUTE, Layout, Workload


def workload_of(config: Config) -> Workload:
    """What the engines do of themselves is set here as our translation of a configuration leaves it (backends/…/translate.py).

    TorchTitan works out the loss in parts of the tokens, but for the zero-bubble schedule. The vocabulary's tables are never padded,
    since a vocabulary that tp does not divide is refused.
    """
    on_device = config.hardware.vendor != "cpu"
    parallel, native = config.parallel, config.backend.native
    is_titan = config.backend.name == "torchtitan"
    is_compiled = _option(native, "compile", "enable") is True if is_titan else on_device
    loss: Literal["fused", "plain", "chunked"] = "plain"
    if is_titan and parallel.schedule != "zero_bubble":
        loss = "chunked"
    layers, group = _recomputed(config)
    return Workload(
        model=config.model,
        seq_len=config.training.seq_len,
        global_batch_size=config.training.global_batch_size,
        engine=config.backend.name,
        compute=config.precision.compute,
        schedule=parallel.schedule,
        padded_vocab=config.model.vocab_size,
        fused=on_device,
        loss=loss,
        compiled=is_compiled,
        gradient_fusion=False,
        attention="portable" if is_titan else "vendor",
        overlap_dp=on_device,
        recompute_layers=layers,
        recompute_group=group,
    )


def _recomputed(config: Config) -> tuple[int | None, int]:
    """Workload's recompute_layers and recompute_group.

    They are training.recompute_layers, or what Megatron is told in its own words: groups of layers (uniform), or the first ones (block).
    """
    layers, native = config.training.recompute_layers, config.backend.native
    words = ("transformer", "recompute_{}") if config.backend.runner == "core" else ("recompute_{}",)
    method, number = (_option(native, *(word.format(name) for word in words)) for name in ("method", "num_layers"))
    if config.backend.name != "megatron" or layers is not None or (method is None and number is None):
        return layers, 1
    number = number if isinstance(number, int) else 1
    return (number, 1) if method == "block" else (None, number)


def layout_of(config: Config, mesh: Mesh, batch: Batch) -> Layout:
    """The layout in plain ints; replicas over which Megatron's optimizer shards all the same count as shards.

    That is where its distributed optimizer is asked for with dp_shard 1 (optimizer_instances in backends/megatron/translate.py).
    """
    parallel = config.parallel
    chosen = parallel.distributed_optimizer
    shards_all = chosen is True and mesh.dp_shard == 1
    return Layout(
        tp=mesh.tp,
        pp=mesh.pp,
        vpp=mesh.vpp,
        cp=mesh.cp,
        ep=mesh.ep,
        etp=mesh.etp,
        dp_replicate=1 if shards_all else mesh.dp_replicate,
        dp_shard=mesh.dp if shards_all else mesh.dp_shard,
        micro_batch_size=batch.micro_batch_size,
        num_microbatches=batch.accumulation,
        sequence_parallel=int(parallel.sequence_parallel and mesh.tp > 1),
        sharded_optimizer=int(mesh.dp_shard > 1 if chosen == "auto" else chosen),
        recompute=RECOMPUTE.index(config.training.recompute),
    )


def again_share(config: Config, mesh: Mesh | None) -> float:
    """The part of the model's layers that recomputation computes again; all where the layout does not come out."""
    layers, _ = _recomputed(config)
    if mesh is None or layers is None or config.training.recompute != "full":
        return 1.0
    return min(1.0, layers * mesh.pp * mesh.vpp / config.model.num_hidden_layers)


def _option(native: object, *names: str) -> object:
    """One of backend.native by its dotted name; None where it is not given."""
    for name in names:
        native = native.get(name) if isinstance(native, dict) else None
    return native
