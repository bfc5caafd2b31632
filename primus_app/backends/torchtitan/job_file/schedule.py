"""The learning rate of a job: warm-up, hold and fall, in the words of optimizer.schedule."""

from collections.abc import Iterator

from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import setting
from primus_app.backends.torchtitan.job_file.read import Job
from primus_app.plan.learning_rate import WSD_DECAY_SHARE

ONE_STEP = "the fall begins one step earlier than TorchTitan's and reaches its end at the last step"


def schedule_rows(job: Job) -> Iterator[Row]:
    """The rows of [lr_scheduler] and of the rates."""
    steps, peak = job["training.steps"], job["optimizer.lr"]
    length = job["lr_scheduler.total_steps"] or steps
    warmup = min(job["lr_scheduler.warmup_steps"], length)
    yield Row("optimizer.lr", peak, setting("optimizer.lr", peak))
    yield Row("training.steps", steps, setting("training.steps", steps))
    became = setting("optimizer.schedule_steps", job["lr_scheduler.total_steps"])
    yield Row("lr_scheduler.total_steps", job["lr_scheduler.total_steps"], became)
    note = "" if warmup == job["lr_scheduler.warmup_steps"] else f"no longer than the {length} steps, as in TorchTitan"
    yield Row("lr_scheduler.warmup_steps", job["lr_scheduler.warmup_steps"], setting("optimizer.warmup_steps", warmup), note=note)
    lowest = job["lr_scheduler.min_lr_factor"] * peak
    note = f"{job['lr_scheduler.min_lr_factor']:g} of the peak"
    yield Row("lr_scheduler.min_lr_factor", job["lr_scheduler.min_lr_factor"], setting("optimizer.min_lr", lowest), note=note)
    yield from _fall(job, length, warmup)


def _fall(job: Job, length: int, warmup: int) -> Iterator[Row]:
    kind, ratio = job["lr_scheduler.decay_type"], job["lr_scheduler.decay_ratio"]
    falling = length - warmup if ratio is None else min(round(length * ratio), length - warmup)
    holds = falling < length - warmup
    schedule = "wsd" if holds else {"sqrt": "linear"}.get(kind, kind)
    same_kind = kind == "linear" or (kind == "cosine" and not holds)
    note = (
        ONE_STEP if same_kind else f"{schedule} is the nearest to {kind}{' after a hold' if holds else ''}; the curve of the rate differs"
    )
    yield Row("lr_scheduler.decay_type", kind, setting("optimizer.schedule", schedule), Fate.SAME if same_kind else Fate.DIFFERS, note)
    if not holds:
        note = "" if ratio is None else f"warm-up and fall fill all {length} steps: nothing is held"
        yield Row("lr_scheduler.decay_ratio", ratio, note=note)
        return
    ours = round(WSD_DECAY_SHARE * (length - warmup))
    same = abs(falling - ours) <= 1
    note = f"wsd falls over the last {ours} steps" + ("" if same else f", TorchTitan over the last {falling}")
    yield Row("lr_scheduler.decay_ratio", ratio, fate=Fate.SAME if same else Fate.DIFFERS, note=note)
