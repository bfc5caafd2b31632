"""Batch, length, rates, optimizer and number formats of an experiment."""

from collections.abc import Iterator

from primus_app.backends.amd_primus.megatron.others import FORMATS
from primus_app.backends.amd_primus.megatron.settings import Settings
from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import setting
from primus_app.plan.learning_rate import WSD_DECAY_SHARE

ONE_STEP = "each rate comes one step earlier than Megatron's, whose first step has none"
SCHEDULES = {"WSD": "wsd", "inverse-square-root": "linear"}
"""Megatron's decay where ours has another name, or the nearest."""


def steps_of(settings: Settings) -> int | None:
    """Optimizer steps; None where neither steps nor samples are given."""
    samples = settings["train_samples"]
    by_samples = None if samples is None else -(-samples // max(1, settings["global_batch_size"]))
    return by_samples if by_samples is not None and "train_iters" not in settings.given else settings["train_iters"]


def batch_rows(settings: Settings) -> Iterator[Row]:
    """How much at a time, and how long."""
    samples, steps = settings["train_samples"], steps_of(settings)
    by_samples = samples is not None and steps != settings["train_iters"]
    became = () if steps is None else setting("training.steps", steps)
    note = f"see train_samples: {steps} steps" if by_samples else ""
    yield Row("train_iters", settings["train_iters"], () if by_samples else became, note=note)
    if samples is not None and not by_samples:
        yield Row("train_samples", samples, fate=Fate.NO_MEANING, note="train_iters says how long")
    else:
        yield Row("train_samples", samples, became if by_samples else ())
    yield Row("global_batch_size", settings["global_batch_size"], setting("training.global_batch_size", settings["global_batch_size"]))
    yield Row("micro_batch_size", settings["micro_batch_size"], setting("training.micro_batch_size", settings["micro_batch_size"]))
    yield Row("seq_length", settings["seq_length"], setting("training.seq_len", settings["seq_length"]))
    yield Row("seed", settings["seed"], setting("training.seed", settings["seed"]))


def optimizer_rows(settings: Settings) -> Iterator[Row]:
    """AdamW: Megatron's adam decays weights apart from the gradient, and no norms and biases, as here."""
    name = settings["optimizer"]
    note = "" if name == "adam" else "AdamW is the only optimizer"
    yield Row("optimizer", name, fate=Fate.SAME if name == "adam" else Fate.DIFFERS, note=note)
    for theirs, ours in (
        ("lr", "lr"),
        ("min_lr", "min_lr"),
        ("weight_decay", "weight_decay"),
        ("adam_beta1", "beta1"),
        ("adam_beta2", "beta2"),
        ("adam_eps", "eps"),
        ("clip_grad", "clip_grad_norm"),
    ):
        if theirs == "min_lr" and settings["lr_decay_style"] == "constant":
            yield Row(theirs, settings[theirs], fate=Fate.NO_MEANING, note="has no effect: the rate stays at lr")
        else:
            yield Row(theirs, settings[theirs], setting(f"optimizer.{ours}", float(settings[theirs])))
    yield Row("deterministic_mode", settings["deterministic_mode"], setting("training.deterministic", settings["deterministic_mode"]))
    yield from _schedule(settings)


def _schedule(settings: Settings) -> Iterator[Row]:
    style, length = settings["lr_decay_style"], settings["lr_decay_iters"]
    yield Row("lr_decay_iters", length, setting("optimizer.schedule_steps", length), note="" if length else "as long as training")
    length = length or steps_of(settings) or 0
    fraction = settings["lr_warmup_fraction"]
    warmup = settings["lr_warmup_iters"] if fraction is None else int(fraction * length)
    became = setting("optimizer.warmup_steps", warmup)
    yield Row("lr_warmup_fraction", fraction, () if fraction is None else became, note="" if fraction is None else f"of {length} steps")
    if fraction is None:
        yield Row("lr_warmup_iters", settings["lr_warmup_iters"], became)
    else:
        yield Row("lr_warmup_iters", settings["lr_warmup_iters"], fate=Fate.NO_MEANING, note="see lr_warmup_fraction")
    schedule = SCHEDULES.get(style, style)
    differs = style == "inverse-square-root"
    note = f"{schedule} is the nearest to {style}; the curve of the rate differs" if differs else ONE_STEP
    yield Row("lr_decay_style", style, setting("optimizer.schedule", schedule), Fate.DIFFERS if differs else Fate.SAME, note)
    yield from _fall(settings, length - warmup)


def _fall(settings: Settings, after: int) -> Iterator[Row]:
    style, steps = settings["lr_wsd_decay_style"], settings["lr_wsd_decay_iters"]
    if settings["lr_decay_style"] != "WSD":
        for key in ("lr_wsd_decay_style", "lr_wsd_decay_iters"):
            yield Row(key, settings[key], fate=Fate.NO_MEANING, note="has an effect with WSD only")
        return
    note = "" if style == "linear" else f"wsd falls linearly, not {style}"
    yield Row("lr_wsd_decay_style", style, fate=Fate.DIFFERS if note else Fate.SAME, note=note)
    ours = round(WSD_DECAY_SHARE * after)
    same = steps is not None and abs(steps - ours) <= 1
    note = f"wsd falls over the last {ours} steps" + ("" if same or steps is None else f", Megatron over the last {steps}")
    yield Row("lr_wsd_decay_iters", steps, fate=Fate.SAME if same else Fate.DIFFERS, note=note)


def precision_rows(settings: Settings) -> Iterator[Row]:
    """The number formats; float32 is the default here."""
    half = settings["fp16"]
    bf16 = settings["bf16"] and not half
    yield Row("bf16", settings["bf16"], ("precision=bf16",) if bf16 else ())
    yield Row("fp16", half, ("precision=bf16",) if half else (), Fate.DIFFERS if half else Fate.SAME, FORMATS if half else "")
