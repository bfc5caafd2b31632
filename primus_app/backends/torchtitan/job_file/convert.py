"""A job file to one command line of ours, with an account of every key."""

from primus_app.backends.imported.converted import Converted, in_file_order
from primus_app.backends.imported.machines import machine_overrides
from primus_app.backends.imported.row import Row
from primus_app.backends.torchtitan.job_file import batch, keeping, layout, model, schedule
from primus_app.backends.torchtitan.job_file.read import Job
from primus_app.config.errors import Problem


def convert(job: Job, devices: int | None = None) -> Converted:
    """Tell ``job`` in our settings; ``devices`` are all that it runs on, needed where its batch hangs on their number."""
    rows, cluster, problems = job_rows(job, devices)
    overrides = tuple(override for row in rows for override in row.became)
    return Converted((*overrides, *cluster), tuple(in_file_order(rows, job.written, job.names)), tuple(problems))


def job_rows(job: Job, devices: int | None) -> tuple[list[Row], tuple[str, ...], list[Problem]]:
    """A row for each key of torchtitan 0.2, given or not; the overrides of the machines; what has to be decided first."""
    ranks, rank_problems = batch.find_ranks(job, devices)
    flavor, model_rows, model_problems = model.find_model(job)
    sizes, batch_problems = batch.batch_rows(job, ranks)
    rows = [
        *model_rows,
        *model.precision_rows(job),
        *model.data_rows(job),
        *layout.layout_rows(job, ranks, flavor),
        *sizes,
        *keeping.optimizer_rows(job),
        *schedule.schedule_rows(job),
        *layout.recompute_rows(job),
        *model.evaluation_rows(job, ranks.dp),
        *keeping.checkpoint_rows(job),
        *keeping.metrics_rows(job),
        *layout.compile_rows(job),
        *keeping.engine_rows(job),
        *keeping.other_rows(job),
        *keeping.extension_rows(job),
    ]
    return rows, machine_overrides(ranks.devices), [*model_problems, *rank_problems, *batch_problems]
