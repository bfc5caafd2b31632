"""What a job writes: checkpoints, metrics, profiles; and the sections that are something else here."""

from collections.abc import Iterator

from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import names, native, setting
from primus_app.backends.torchtitan.job_file.fields import FIELDS
from primus_app.backends.torchtitan.job_file.read import Job

RESUME = "the same command with the same exp_name goes on from the newest complete checkpoint, on any layout"


def checkpoint_rows(job: Job) -> Iterator[Row]:
    """[checkpoint]: how often and how many; every checkpoint holds the whole state."""
    enabled = job["checkpoint.enable"] and not job["checkpoint.load_only"]
    yield Row("checkpoint.enable", job["checkpoint.enable"], () if enabled else ("checkpoint=none",))
    off = "has no effect: no checkpoints are saved"
    for key, ours in (("checkpoint.interval", "checkpoint.every"), ("checkpoint.keep_latest_k", "checkpoint.keep")):
        became = setting(ours, job[key]) if enabled else ()
        yield Row(key, job[key], became, Fate.SAME if enabled else Fate.NO_MEANING, "" if enabled else off)
    key = "checkpoint.enable_first_step_checkpoint"
    yield Row(key, job[key], native(key, job[key], False) if enabled else (), Fate.SAME if enabled else Fate.NO_MEANING)
    yield from _first_weights(job)
    mode = job["checkpoint.async_mode"]
    pinned = mode == "async_with_pinned_mem"
    note = "by way of ordinary memory of the host" if pinned else "" if enabled else off
    fate = Fate.NO_MEANING if not enabled else Fate.DIFFERS if pinned else Fate.SAME
    yield Row("checkpoint.async_mode", mode, setting("checkpoint.async", mode != "disabled") if enabled else (), fate, note)
    yield from _last(job, enabled)
    for name, note in (
        ("folder", "they lie in checkpoints/ of the run directory"),
        ("load_step", RESUME),
        ("exclude_from_loading", RESUME),
        ("load_only", RESUME),
        ("create_seed_checkpoint", "seeded weights are the same on every layout, without such a checkpoint"),
        ("enable_ft_dataloader_checkpoints", "the data's place is in every checkpoint"),
        ("interval_type", "intervals are steps"),
    ):
        yield Row(f"checkpoint.{name}", job[f"checkpoint.{name}"], fate=Fate.NO_MEANING, note=note)


def _first_weights(job: Job) -> Iterator[Row]:
    """A Hugging Face folder is one here too; a checkpoint of TorchTitan's own is not read."""
    path, is_hf = job["checkpoint.initial_load_path"], job["checkpoint.initial_load_in_hf"]
    folder = (path or job["model.hf_assets_path"]) if is_hf else None
    became = setting("checkpoint.load", folder) if folder else ()
    lost = bool(path) and not is_hf
    note = "weights start from the seed: a checkpoint of TorchTitan's own is not read, a Hugging Face folder is" if lost else ""
    yield Row("checkpoint.initial_load_path", path, became if path else (), Fate.DIFFERS if lost else Fate.SAME, note)
    note = "weights start from the seed: no Hugging Face folder is named" if is_hf and not folder else ""
    fate = Fate.DIFFERS if note else Fate.SAME
    yield Row("checkpoint.initial_load_in_hf", is_hf, () if path else became, fate, note)
    quantized = job["checkpoint.initial_load_in_hf_quantized"]
    note = "weights in 8 bits are not read: convert them to bfloat16 first" if quantized else "weights are read as they are stored"
    yield Row("checkpoint.initial_load_in_hf_quantized", quantized, fate=Fate.DIFFERS if quantized else Fate.NO_MEANING, note=note)
    note = "checkpoint.load takes weights only"
    yield Row("checkpoint.initial_load_model_only", job["checkpoint.initial_load_model_only"], fate=Fate.NO_MEANING, note=note)


def _last(job: Job, enabled: bool) -> Iterator[Row]:
    hf = enabled and job["checkpoint.last_save_in_hf"]
    note = "no safetensors of Hugging Face are written at the end" if hf else "every checkpoint is in TorchTitan's own format"
    yield Row("checkpoint.last_save_in_hf", job["checkpoint.last_save_in_hf"], fate=Fate.DIFFERS if hf else Fate.NO_MEANING, note=note)
    for name in ("last_save_model_only", "export_dtype"):
        note = "the last checkpoint holds the whole state in float32, so that the run can be made longer"
        yield Row(f"checkpoint.{name}", job[f"checkpoint.{name}"], fate=Fate.NO_MEANING, note=note)


def metrics_rows(job: Job) -> Iterator[Row]:
    """[metrics] and [profiling]."""
    yield Row("metrics.log_freq", job["metrics.log_freq"], setting("logging.every", job["metrics.log_freq"]))
    board = job["metrics.enable_tensorboard"]
    yield Row("metrics.enable_tensorboard", board, setting("logging.tensorboard", board))
    wandb = job["metrics.enable_wandb"]
    note = "metrics go to metrics.jsonl and TensorBoard" + (", not to Weights & Biases" if wandb else "")
    yield Row("metrics.enable_wandb", wandb, fate=Fate.DIFFERS if wandb else Fate.NO_MEANING, note=note)
    for name, note in (
        ("disable_color_printing", "the log has no colours"),
        ("save_tb_folder", "TensorBoard's files lie in tensorboard/ of the run directory"),
        ("save_for_all_ranks", "the rank that knows the loss writes"),
    ):
        yield Row(f"metrics.{name}", job[f"metrics.{name}"], fate=Fate.NO_MEANING, note=note)
    profiling, memory = job["profiling.enable_profiling"], job["profiling.enable_memory_snapshot"]
    for name, default, on in (
        ("enable_profiling", False, True),
        ("save_traces_folder", "profiling/traces", profiling),
        ("profile_freq", 10, profiling or memory),
        ("profiler_active", 1, profiling),
        ("profiler_warmup", 3, profiling),
        ("enable_memory_snapshot", False, True),
        ("save_memory_snapshot_folder", "profiling/memory_snapshot", memory),
    ):
        value = job[f"profiling.{name}"]
        given = on and (job.gives(f"profiling.{name}") or not isinstance(value, str))
        became = native(f"profiler.{name}", value, default) if given else ()
        note = "" if on else "has no effect: it is off"
        yield Row(f"profiling.{name}", value, became, Fate.SAME if on else Fate.NO_MEANING, note)


def engine_rows(job: Job) -> Iterator[Row]:
    """Options that TorchTitan 0.3 has as they were: they go through."""
    for key, default in (
        ("optimizer.implementation", "fused"),
        ("training.enable_cpu_offload", False),
        ("training.gc_freq", 50),
        ("training.gc_debug", False),
        ("comm.init_timeout_seconds", 300),
        ("comm.train_timeout_seconds", 100),
        ("comm.trace_buf_size", 20000),
    ):
        value = job[key]
        if isinstance(value, bool) and not isinstance(default, bool):
            value = "fused" if value else "foreach"
        yield Row(key, job[key], native(key, value, default))
    key = "debug.deterministic_warn_only"
    on = job["debug.deterministic"]
    yield Row(key, job[key], native(key, job[key], False) if on else (), Fate.SAME if on else Fate.NO_MEANING)
    for name, note in (
        ("save_traces_folder", "traces lie in attempts/<number>/comm_traces of the run directory"),
        ("save_traces_file_prefix", "traces are called rank_<number>"),
        ("mode", "ranks really communicate"),
    ):
        differs = name == "mode" and job["comm.mode"] != "default"
        yield Row(f"comm.{name}", job[f"comm.{name}"], fate=Fate.DIFFERS if differs else Fate.NO_MEANING, note=note)


def other_rows(job: Job) -> Iterator[Row]:
    """[job], [memory_estimation], [fault_tolerance], [experimental], [debug]."""
    folder = job["job.dump_folder"]
    yield Row("job.dump_folder", folder, setting("workspace", folder) if job.gives("job.dump_folder") else ())
    for name, note in (
        ("config_file", "the command is the configuration"),
        ("description", "exp_name=<name> gives the run a name"),
        ("print_config", "native/torchtitan.json of the run directory is what TorchTitan received"),
        ("save_config_file", "native/torchtitan.json of the run directory is what TorchTitan received"),
        ("use_for_integration_test", "is TorchTitan's own"),
    ):
        yield Row(f"job.{name}", job[f"job.{name}"], fate=Fate.NO_MEANING, note=note)
    forced = job["debug.moe_force_load_balance"]
    note = "tokens go where the router sends them"
    yield Row("debug.moe_force_load_balance", forced, fate=Fate.DIFFERS if forced else Fate.NO_MEANING, note=note)
    for key in ("job.custom_config_module", "experimental.custom_import", "experimental.custom_args_module"):
        note = "code of your own is not imported: a model comes as a config.json (model=hf)" if job[key] else "none given"
        yield Row(key, job[key], fate=Fate.DIFFERS if job[key] else Fate.NO_MEANING, note=note)
    for key in (name for name in FIELDS if name.startswith("memory_estimation.")):
        yield Row(key, job[key], fate=Fate.NO_MEANING, note="`plan` tells the memory of weights, gradients and moments")
    enabled = job["fault_tolerance.enable"]
    for key in (name for name in FIELDS if name.startswith("fault_tolerance.")):
        note = f"torchft is not used: {RESUME}" if enabled else "has no effect: it is off"
        yield Row(key, job[key], fate=Fate.DIFFERS if enabled and job.gives(key) else Fate.NO_MEANING, note=note)


def optimizer_rows(job: Job) -> Iterator[Row]:
    """[optimizer] but for the rates, and what else decides the curve."""
    name = job["optimizer.name"]
    note = "" if name == "AdamW" else "AdamW is the only optimizer: its weight decay is decoupled"
    yield Row("optimizer.name", name, fate=Fate.SAME if name == "AdamW" else Fate.DIFFERS, note=note)
    for key in ("beta1", "beta2", "eps"):
        yield Row(f"optimizer.{key}", job[f"optimizer.{key}"], setting(f"optimizer.{key}", job[f"optimizer.{key}"]))
    decay = job["optimizer.weight_decay"]
    note = "norms and biases are not decayed; TorchTitan decays them too" if decay else ""
    yield Row("optimizer.weight_decay", decay, setting("optimizer.weight_decay", decay), Fate.DIFFERS if decay else Fate.SAME, note)
    early = job["optimizer.early_step_in_backward"]
    note = "all gradients are there before the step" if early else "is off"
    yield Row("optimizer.early_step_in_backward", early, fate=Fate.DIFFERS if early else Fate.NO_MEANING, note=note)
    yield Row("training.max_norm", job["training.max_norm"], setting("optimizer.clip_grad_norm", job["training.max_norm"]))
    yield Row("training.seq_len", job["training.seq_len"], setting("training.seq_len", job["training.seq_len"]))
    seed = job["debug.seed"]
    yield Row("debug.seed", seed, () if seed is None else setting("training.seed", seed))
    yield Row("debug.deterministic", job["debug.deterministic"], setting("training.deterministic", job["debug.deterministic"]))


def extension_rows(job: Job) -> Iterator[Row]:
    """Keys that code of the user's own has added."""
    for key, value in job.written.items():
        if key not in job.names:
            yield Row(key, value, fate=Fate.DIFFERS, note=f"is read by {' and '.join(_modules(job))}, which is not imported here")


def _modules(job: Job) -> list[str]:
    return names([job[key] for key in ("job.custom_config_module", "experimental.custom_args_module") if job[key]])
