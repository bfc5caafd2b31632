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
    )


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


def _option(native: object, *names: str) -> object:
    """One of backend.native by its dotted name; None where it is not given."""
    for name in names:
        native = native.get(name) if isinstance(native, dict) else None
    return native
