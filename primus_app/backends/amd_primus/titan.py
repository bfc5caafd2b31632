"""Primus' experiments for TorchTitan: TorchTitan's own keys, as import-titan tells them, and those that Primus adds."""

from collections.abc import Mapping
from typing import Any

from primus_app.backends.amd_primus.common import level_row, mock_row
from primus_app.backends.amd_primus.read import Experiment
from primus_app.backends.imported.row import Fate, Row, unknown_row
from primus_app.backends.imported.setting import setting
from primus_app.backends.torchtitan.job_file.convert import job_rows
from primus_app.backends.torchtitan.job_file.fields import FIELDS
from primus_app.backends.torchtitan.job_file.read import current_name, job_problems, make_job, nearest_names
from primus_app.config.errors import Problem
from primus_app.config.suggest import nearest

TURBO = "a choice of Primus-Turbo's kernels; TorchTitan's own are used, and the loss is the same"
EIGHT_BITS = "only bfloat16 and float32 are trained here"
SIZES = {"n_layers": "num_hidden_layers", "vocab_size": "vocab_size", "rope_theta": "rope_theta", "norm_eps": "rms_norm_eps"}
"""Sizes of TorchTitan's models that Primus changes by key, and ours."""

SIZES_ALONE = "sizes that hang on one another are given one by one: model.hidden_size, model.head_dim …"
OTHER_SIZES = ("dim", "n_heads", "n_kv_heads", "ffn_dim_multiplier", "multiple_of", "max_seq_len", "hidden_dim", "head_dim")
TURBO_FLAGS = (
    *("enable_primus_turbo", "use_turbo_attention", "use_classic_attention", "use_turbo_async_tp", "use_turbo_mx_linear"),
    *("use_turbo_float8_linear", "use_turbo_grouped_mm", "enable_embedding_autocast"),
)
TURBO_EIGHT_BITS = ("enable_attention_float8", "use_moe_fp8")
LEVELS = ("sink_level", "file_sink_level", "stderr_sink_level", "trainable")
PRIMUS_KEYS = (
    "training.mock_data",
    *(f"primus_turbo.{flag}" for flag in (*TURBO_FLAGS, *TURBO_EIGHT_BITS)),
    *(f"model.{size}" for size in (*SIZES, *OTHER_SIZES)),
    *LEVELS,
)
"""Keys that Primus adds to TorchTitan's."""

MOVED = {"training.debug_moe_force_load_balance": "debug.moe_force_load_balance"}
"""Keys of TorchTitan's between two releases, in Primus' older files."""


def rows(experiment: Experiment, presets: Mapping[str, Any], devices: int | None) -> tuple[list[Row], tuple[str, ...], list[Problem]]:
    """A row for each key; the overrides of the machines; what is wrong."""
    settings = {_plain(key): value for key, value in experiment.settings.items()}
    theirs = {key: value for key, value in settings.items() if current_name(key) in FIELDS}
    job = make_job(theirs, {key: value for key, value in presets.items() if key in FIELDS})
    if wrong := job_problems(experiment.path, job):
        return [], (), wrong
    found, cluster, problems = job_rows(job, devices)
    names = {known: written for written, known in job.names.items()}
    mock = settings.get("training.mock_data", presets.get("training.mock_data", False))
    if not isinstance(mock, bool):
        return [], (), [Problem(f"{experiment.path}: training.mock_data", f"{mock!r} is not allowed; it takes true or false")]
    told = [_renamed(_without_text(row) if mock else _hub(row), names) for row in found]
    told.append(mock_row("training.mock_data", mock))
    told += [_own_row(key, value) for key, value in settings.items() if key not in theirs and key != "training.mock_data"]
    spelt = {_plain(key): key for key in experiment.settings}
    return [_renamed(row, spelt) for row in told], cluster, problems


def _plain(key: str) -> str:
    """``model_overrides.model.n_layers`` is ``model.n_layers``."""
    key = key.removeprefix("model_overrides.")
    return MOVED.get(key, key)


def _renamed(row: Row, names: Mapping[str, str]) -> Row:
    return row if names.get(row.key, row.key) == row.key else Row(names[row.key], row.value, row.became, row.fate, row.note, row.is_default)


def _without_text(row: Row) -> Row:
    """With mock data nothing is read and nothing tokenised."""
    if row.key not in ("training.dataset", "training.dataset_path", "model.hf_assets_path", "model.tokenizer_path"):
        return row
    return Row(row.key, row.value, fate=Fate.NO_MEANING, note="mock_data takes the place of text")


def _hub(row: Row) -> Row:
    """Primus downloads a tokenizer by its name on the hub."""
    path = str(row.value)
    if row.key != "model.hf_assets_path" or not row.became or path.startswith((".", "/", "~")) or path.count("/") != 1:
        return row
    note = "a name on the Hugging Face hub is not downloaded: give the folder with its tokenizer.json"
    return Row(row.key, row.value, row.became, Fate.DIFFERS, note)


def _own_row(key: str, value: Any) -> Row:
    section, _, last = key.rpartition(".")
    if section == "primus_turbo" and last in TURBO_FLAGS:
        return Row(key, value, fate=Fate.NO_MEANING, note=TURBO)
    if section == "primus_turbo" and last in TURBO_EIGHT_BITS:
        return Row(key, value, fate=Fate.DIFFERS if value and last == "enable_attention_float8" else Fate.NO_MEANING, note=EIGHT_BITS)
    if section == "model" and last in SIZES:
        return Row(key, value, setting(f"model.{SIZES[last]}", value))
    if section == "model" and last in OTHER_SIZES:
        return Row(key, value, fate=Fate.DIFFERS, note=SIZES_ALONE)
    if key == "stderr_sink_level":
        return level_row(key, value)
    if key in LEVELS:
        return Row(key, value, fate=Fate.NO_MEANING, note="the log goes to logs/")
    return unknown_row(key, value, _near(key))


def _near(key: str) -> list[str]:
    own = [each for each in PRIMUS_KEYS if each.partition(".")[0] == key.partition(".")[0]]
    return nearest(key, own, cutoff=0.8) or nearest_names(key)
