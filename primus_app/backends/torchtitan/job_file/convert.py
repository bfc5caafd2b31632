"""A job file to one command line of ours, with an account of every key."""

from dataclasses import dataclass, replace

from primus_app.backends.torchtitan.job_file import batch, keeping, layout, model, schedule
from primus_app.backends.torchtitan.job_file.read import Job
from primus_app.backends.torchtitan.job_file.row import Fate, Row
from primus_app.config.errors import Problem


@dataclass(frozen=True)
class Converted:
    """The overrides of the command, what became of every key, and what has to be decided before there is a command."""

    overrides: tuple[str, ...]
    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]


def convert(job: Job, devices: int | None = None) -> Converted:
    """Tell ``job`` in our settings; ``devices`` are all that it runs on, needed where its batch hangs on their number."""
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
    overrides = tuple(override for row in rows for override in row.became)
    shown = tuple(_as_in_the_file(job, rows))
    return Converted((*overrides, *batch.device_overrides(ranks)), shown, (*model_problems, *rank_problems, *batch_problems))


def _as_in_the_file(job: Job, rows: list[Row]) -> list[Row]:
    """The keys of the file in its order and words, then TorchTitan's defaults that are not ours."""
    by_name = {row.key: row for row in rows}
    given = [replace(by_name[job.names.get(key, key)], key=key, value=value) for key, value in job.written.items()]
    names = {job.names.get(key, key) for key in job.written}
    matters = (row for row in rows if row.key not in names and (row.became or row.fate is Fate.DIFFERS))
    return [*given, *(replace(row, is_default=True) for row in matters)]
