"""Data, evaluation, checkpoints and the log of an experiment."""

from collections.abc import Iterator
from typing import Any

from primus_app.backends.amd_primus.common import level_row, mock_row
from primus_app.backends.amd_primus.megatron.settings import Settings
from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import setting

NO_CORPUS = "no corpus is named: data=stdlib_text, the default, is a small one that needs nothing; data=indexed data.path=<.bin and .idx>"
OTHER_SPLIT = "one corpus is divided into training and validation by data.split"


def data_rows(settings: Settings) -> Iterator[Row]:
    """Mock data, or pairs of .bin and .idx, with weights where Megatron has them between the paths."""
    mock = settings["mock_data"]
    used = next((key for key in ("train_data_path", "data_path") if settings[key]), None)
    yield mock_row("mock_data", mock)
    for key in ("train_data_path", "data_path"):
        value = settings[key]
        if mock:
            yield Row(key, value, fate=Fate.NO_MEANING, note="mock_data takes its place" if value else "")
        elif key == used and (wrong := _wrong_pairs(value)):
            yield Row(key, value, fate=Fate.DIFFERS, note=wrong)
        elif key == used:
            yield Row(key, value, corpus(value))
        else:
            lacking = used is None and key == "train_data_path"
            yield Row(key, value, fate=Fate.DIFFERS if lacking or value else Fate.SAME, note=NO_CORPUS if lacking else "")
    yield from _splits(settings, used if not mock else None)
    yield from _documents(settings)
    yield from _evaluation(settings)


def _wrong_pairs(value: str | list[str]) -> str | None:
    """What is wrong with weights among paths that are not each before its path; None for pairs, and for paths alone."""
    parts = _parts(value)
    numbers = [place for place, each in enumerate(parts) if _number(each) is not None]
    if not numbers or (numbers == list(range(0, len(parts), 2)) and len(parts) % 2 == 0):
        return None
    first = next((place for place, each in enumerate(parts) if (_number(each) is None) == (place % 2 == 0)), len(parts))
    where = f"{parts[first]!r} at place {first + 1}" if first < len(parts) else f"{parts[-1]!r} at the end, which no path follows,"
    return f"{where} is not as Megatron has it, a weight before each path: 0.3 /data/a 0.7 /data/b; set data.path and data.weights"


def _parts(value: str | list[str]) -> list[str]:
    return value.split() if isinstance(value, str) else [str(each) for each in value]


def corpus(value: str | list[str]) -> tuple[str, ...]:
    """``[weight, path, weight, path]`` or ``[path, path]``, also as text with spaces."""
    parts = _parts(value)
    weights = [_number(each) for each in parts[::2]]
    if len(parts) % 2 == 0 and all(weight is not None for weight in weights):
        paths: Any = parts[1::2]
        alone = len(paths) == 1
        return ("data=indexed", *setting("data.path", paths[0] if alone else paths), *(() if alone else setting("data.weights", weights)))
    return ("data=indexed", *setting("data.path", parts[0] if len(parts) == 1 else parts))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _splits(settings: Settings, used: str | None) -> Iterator[Row]:
    """Shares for training and validation; a corpus for training alone is whole where nothing is evaluated."""
    split, evaluates = settings["split"], bool(settings["eval_iters"] and settings["eval_interval"])
    parts = [_number(each) for each in (split or "").split(",")]
    if used == "data_path" and split and None not in parts:
        shares = [*(each for each in parts if each is not None), 0.0, 0.0][:3]
        note = "there is no test split" if shares[2] > 0 else ""
        yield Row("split", split, setting("data.split", shares[:2]), Fate.DIFFERS if note else Fate.SAME, note)
    elif used == "train_data_path" and not evaluates:
        yield Row("split", split, setting("data.split", [100.0, 0.0]), note="train_data_path is all for training")
    elif used == "train_data_path":
        yield Row("split", split, fate=Fate.DIFFERS, note=OTHER_SPLIT)
    else:
        yield Row("split", split, fate=Fate.NO_MEANING, note="has an effect with data_path only")
    for key in ("valid_data_path", "test_data_path"):
        given = bool(settings[key]) and not settings["mock_data"]
        yield Row(key, settings[key], fate=Fate.DIFFERS if given else Fate.SAME, note=OTHER_SPLIT if given else "")
    cache = settings["data_cache_path"]
    yield Row("data_cache_path", cache, setting("data.cache_dir", cache) if used else ())


def _documents(settings: Settings) -> Iterator[Row]:
    mask, positions = settings["reset_attention_mask"], settings["reset_position_ids"]
    alone = "attention and positions stop at document borders together, or not at all"
    one = mask != positions
    became = ("training.document_mask=true",) if mask and positions else ()
    yield Row("reset_attention_mask", mask, became, Fate.DIFFERS if mask and one else Fate.SAME, alone if mask and one else "")
    note = "" if not positions else alone if one else "see reset_attention_mask"
    yield Row("reset_position_ids", positions, fate=Fate.DIFFERS if positions and one else Fate.SAME, note=note)
    masked, mock = settings["eod_mask_loss"], settings["mock_data"]
    if masked and mock:
        yield Row("eod_mask_loss", masked, fate=Fate.NO_MEANING, note="mock data has no documents")
    elif masked:
        yield Row("eod_mask_loss", masked, fate=Fate.DIFFERS, note="the loss counts every token, ends of documents too")
    else:
        yield Row("eod_mask_loss", masked)


def _evaluation(settings: Settings) -> Iterator[Row]:
    steps, every = settings["eval_iters"] or 0, settings["eval_interval"] or 0
    if not steps or not every:
        yield Row("eval_iters", settings["eval_iters"], setting("training.eval_every", 0))
        yield Row("eval_interval", settings["eval_interval"], fate=Fate.NO_MEANING, note="has no effect: nothing is evaluated")
        return
    yield Row("eval_iters", steps, setting("training.eval_steps", steps))
    yield Row("eval_interval", every, setting("training.eval_every", every))


def checkpoint_rows(settings: Settings) -> Iterator[Row]:
    """Primus saves where ``save`` names anything, into checkpoints/ of its run's folder, and keeps all."""
    save, every = settings["save"], settings["save_interval"]
    saves = save is not None and bool(every)
    note = "they lie in checkpoints/ of the run directory, as with Primus" if saves else ""
    yield Row("save", save, () if saves else ("checkpoint=none",), note=note)
    became = (*setting("checkpoint.every", every), "checkpoint.keep=0") if saves else ()
    yield Row("save_interval", every, became, Fate.SAME if saves else Fate.NO_MEANING, "" if saves else "has no effect: nothing is saved")
    later = settings["async_save"]
    off = bool(later) and not saves
    yield Row("async_save", later, setting("checkpoint.async", bool(later)) if saves else (), Fate.NO_MEANING if off else Fate.SAME)
    for key in ("load", "pretrained_checkpoint"):
        given = settings[key] is not None
        note = "a checkpoint of Megatron-LM's own is not read: checkpoint.load takes a run of this program or a Hugging Face folder"
        yield Row(key, settings[key], fate=Fate.DIFFERS if given else Fate.SAME, note=note if given else "")


def log_rows(settings: Settings) -> Iterator[Row]:
    """What is written down."""
    yield Row("log_interval", settings["log_interval"], setting("logging.every", settings["log_interval"]))
    board = not settings["disable_tensorboard"]
    yield Row("disable_tensorboard", settings["disable_tensorboard"], setting("logging.tensorboard", board))
    for key, where in (("disable_wandb", "Weights & Biases"), ("disable_mlflow", "MLflow")):
        on = not settings[key]
        yield Row(key, settings[key], fate=Fate.DIFFERS if on else Fate.SAME, note=f"nothing goes to {where}" if on else "")
    yield level_row("stderr_sink_level", settings["stderr_sink_level"])
    profile = settings["profile"]
    note = "nothing is profiled on this engine" if profile else ""
    yield Row("profile", profile, fate=Fate.DIFFERS if profile else Fate.SAME, note=note)
