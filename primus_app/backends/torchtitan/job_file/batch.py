"""The ranks and the batch of a job: TorchTitan counts samples on a rank, here they are counted over all ranks."""

from collections.abc import Iterator
from dataclasses import dataclass

from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import setting
from primus_app.backends.torchtitan.job_file.read import Job
from primus_app.config.errors import Problem
from primus_app.plan.neighbours import nearest_multiples, offer


@dataclass(frozen=True)
class Ranks:
    """The degrees of a job, and its data-parallel ranks where they can be known."""

    tp: int
    pp: int
    cp: int
    ep: int
    replicate: int
    shard: int | None
    devices: int | None

    @property
    def dp(self) -> int | None:
        return None if self.shard is None else self.replicate * self.shard


def find_ranks(job: Job, devices: int | None) -> tuple[Ranks, list[Problem]]:
    """The ranks; ``data_parallel_shard_degree = -1`` takes what is left of ``devices``."""
    tp, pp, cp, ep, replicate, shard = (
        job[f"parallelism.{name}_degree"]
        for name in (
            "tensor_parallel",
            "pipeline_parallel",
            "context_parallel",
            "expert_parallel",
            "data_parallel_replicate",
            "data_parallel_shard",
        )
    )
    fixed = tp * pp * cp * replicate * (shard if shard > 0 else 1)
    if devices is not None and (devices % fixed if shard < 0 else devices != fixed):
        relation = "is not divisible by" if shard < 0 else "is not"
        parts = {"tp": tp, "pp": pp, "cp": cp, "dp_replicate": replicate, **({"dp_shard": shard} if shard > 0 else {})}
        product = " x ".join(f"{name} {value}" for name, value in parts.items())
        problem = Problem("--devices", f"{devices} {relation} {product} = {fixed}", (f"give --devices {-(-devices // fixed) * fixed}",))
        return Ranks(tp, pp, cp, ep, replicate, None, devices), [problem]
    known = shard if shard > 0 else (devices // fixed if devices is not None else None)
    return Ranks(tp, pp, cp, ep, replicate, known, devices), []


def batch_rows(job: Job, ranks: Ranks) -> tuple[list[Row], list[Problem]]:
    """The rows of the batch; a global batch that hangs on an unknown number of devices is a problem."""
    local, size = job["training.local_batch_size"], job["training.global_batch_size"]
    micro = job["parallelism.pipeline_parallel_microbatch_size"] if ranks.pp > 1 else local
    rows = list(_micro_rows(job, ranks, micro))
    if size > 0:
        uneven = ranks.dp is not None and size % (local * ranks.dp)
        problems = [_uneven(size, local, ranks.dp or 1)] if uneven else []
        return [Row("training.global_batch_size", size, setting("training.global_batch_size", size)), *rows], problems
    if ranks.dp is None:
        open_row = Row("training.global_batch_size", size, fate=Fate.DIFFERS, note="hangs on the number of devices")
        return [open_row, *rows], [] if ranks.devices else [_unknown_devices(ranks, local)]
    note = f"local_batch_size {local} x {ranks.dp} data-parallel ranks"
    became = setting("training.global_batch_size", local * ranks.dp)
    return [Row("training.global_batch_size", size, became, note=note), *rows], []


def _uneven(size: int, local: int, dp: int) -> Problem:
    what = f"{size} is not divisible by local_batch_size {local} x {dp} data-parallel ranks = {local * dp}, here or in TorchTitan"
    return Problem("training.global_batch_size", what, offer("global_batch_size", nearest_multiples(local * dp, size)))


def _micro_rows(job: Job, ranks: Ranks, micro: int) -> Iterator[Row]:
    became = setting("training.micro_batch_size", micro)
    local, by_pipeline = "training.local_batch_size", "parallelism.pipeline_parallel_microbatch_size"
    if ranks.pp > 1:
        yield Row(by_pipeline, micro, became)
        yield Row(local, job[local], note="divided into the pipeline's micro batches; the global batch counts")
    else:
        yield Row(local, micro, became)
        yield Row(by_pipeline, job[by_pipeline], fate=Fate.NO_MEANING, note="has no effect without a pipeline")


def _unknown_devices(ranks: Ranks, local: int) -> Problem:
    degrees = {"tp": ranks.tp, "cp": ranks.cp, "pp": ranks.pp}
    model_parallel = " x ".join(f"{name} {value}" for name, value in degrees.items() if value > 1)
    divided = f" / ({model_parallel})" if model_parallel else ""
    what = f"is local_batch_size {local} x data-parallel ranks = {local} x devices{divided}, and the file does not say how many devices"
    return Problem("training.global_batch_size", what, ("add --devices <how many there are in all>",))
