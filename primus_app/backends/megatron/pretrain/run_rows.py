"""The table's part on what is trained, how long, at which rate, and what is kept of it."""

from typing import Any

from primus_app.backends.megatron.pretrain.row import Source, Value, row, setting
from primus_app.backends.megatron.translate import data_parallel_settings, optimizer_instances, optimizer_settings, shards_optimizer
from primus_app.plan.learning_rate import WSD_DECAY_SHARE, warmup_steps

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant", "wsd": "WSD"}


def _warmup(source: Source) -> int:
    return warmup_steps(source.config.optimizer, source.schedule_steps)


def _warmup_iters(source: Source) -> Value:
    """Megatron's first step has the rate of its step 0, ours that of step 1: its warm-up begins there and is one step shorter."""
    return max(_warmup(source) - 1, 0)


def _warmup_init(source: Source) -> Value:
    return source.config.optimizer.lr / _warmup(source) if _warmup(source) > 1 else 0.0


def _decay_iters(source: Source) -> Value:
    return max(source.schedule_steps - 1, _warmup(source), 1)


def wsd_decay_steps(source: Source) -> float:
    """Over how many steps wsd falls; Megatron takes whole ones."""
    return round(WSD_DECAY_SHARE * (source.schedule_steps - _warmup(source)), 9)


def _wsd_decay_iters(source: Source) -> Value:
    return max(int(wsd_decay_steps(source)), 1) if source.config.optimizer.schedule == "wsd" else None


def _min_lr(source: Source) -> Value:
    optimizer = source.config.optimizer
    return optimizer.lr / 10 if optimizer.min_lr is None else optimizer.min_lr


def _evaluations(source: Source) -> Value:
    return source.config.training.eval_steps if source.config.training.eval_every else 0


def _data_path(source: Source) -> Value:
    data = source.config.data
    if source.hosted or data.source != "indexed" or data.path is None:
        return None
    paths = [data.path] if isinstance(data.path, str) else data.path
    stems = [path.removesuffix(".bin").removesuffix(".idx") for path in paths]
    if data.weights is None:
        return stems
    return [word for weight, stem in zip(data.weights, stems, strict=True) for word in (repr(weight), stem)]


def _split(source: Source) -> Value:
    train, valid = source.config.data.split
    return None if source.hosted or source.config.data.source == "mock" else f"{train:g},{valid:g},0"


def _data_parallel(source: Source) -> dict[str, Any]:
    return data_parallel_settings(source.config, source.mesh, cpu=source.cpu)


RUN_ROWS = (
    row("training.steps training.tokens", "--train-iters", lambda s: s.batch.steps),
    row("training.seq_len", "--seq-length", lambda s: s.config.training.seq_len),
    row("training.global_batch_size", "--global-batch-size", lambda s: s.batch.global_batch_size),
    row("training.micro_batch_size", "--micro-batch-size", lambda s: s.batch.micro_batch_size),
    row("training.seed", "--seed", lambda s: s.config.training.seed % 2**31),
    row("training.recompute", "--recompute-granularity", setting("recompute_granularity")),
    row("training.recompute", "--recompute-modules", lambda s: s.settings.get("recompute_modules")),
    row("training.recompute training.recompute_layers", "--recompute-method", setting("recompute_method")),
    row("training.recompute training.recompute_layers", "--recompute-num-layers", setting("recompute_num_layers")),
    row("training.eval_every", "--eval-interval", lambda s: s.config.training.eval_every or s.batch.steps),
    row("training.eval_steps", "--eval-iters", _evaluations),
    row("training.document_mask", "--reset-position-ids", lambda s: not s.hosted and s.config.training.document_mask),
    row("training.document_mask", "--reset-attention-mask", lambda s: not s.hosted and s.config.training.document_mask),
    row("training.deterministic", "--deterministic-mode", setting("deterministic_mode")),
    row("", "--calculate-per-token-loss", setting("calculate_per_token_loss")),
    # The optimizer and its schedule.
    row("optimizer.name", "--optimizer", lambda s: optimizer_settings(s.config, s.mesh, cpu=s.cpu)["optimizer"]),
    row("optimizer.lr", "--lr", lambda s: s.config.optimizer.lr),
    row("optimizer.min_lr", "--min-lr", _min_lr),
    row("optimizer.schedule", "--lr-decay-style", lambda s: SCHEDULES[s.config.optimizer.schedule]),
    row("optimizer.warmup_steps", "--lr-warmup-iters", _warmup_iters),
    row("optimizer.warmup_steps", "--lr-warmup-init", _warmup_init),
    row("optimizer.schedule_steps", "--lr-decay-iters", _decay_iters),
    row("optimizer.schedule", "--lr-wsd-decay-iters", _wsd_decay_iters),
    row("optimizer.schedule", "--lr-wsd-decay-style", lambda s: "linear" if s.config.optimizer.schedule == "wsd" else None),
    row("optimizer.weight_decay", "--weight-decay", lambda s: s.config.optimizer.weight_decay),
    row("optimizer.beta1", "--adam-beta1", lambda s: s.config.optimizer.beta1),
    row("optimizer.beta2", "--adam-beta2", lambda s: s.config.optimizer.beta2),
    row("optimizer.eps", "--adam-eps", lambda s: s.config.optimizer.eps),
    row("optimizer.clip_grad_norm", "--clip-grad", lambda s: optimizer_settings(s.config, s.mesh, cpu=s.cpu)["clip_grad"]),
    # Number formats.
    row("precision.compute", "--bf16", setting("bf16")),
    row("precision.grads", "--accumulate-allreduce-grads-in-fp32", lambda s: _data_parallel(s)["grad_reduce_in_fp32"]),
    # Data parallel ranks.
    row("parallel.distributed_optimizer parallel.dp_shard", "--use-distributed-optimizer", lambda s: shards_optimizer(s.config, s.mesh)),
    row("parallel.dp_replicate", "--num-distributed-optimizer-instances", lambda s: optimizer_instances(s.mesh)),
    row("", "--overlap-grad-reduce", lambda s: _data_parallel(s)["overlap_grad_reduce"]),
    row("", "--overlap-param-gather", lambda s: _data_parallel(s)["overlap_param_gather"]),
    row("", "--no-align-param-gather", lambda s: _data_parallel(s)["overlap_param_gather"] and not _data_parallel(s)["align_param_gather"]),
    # What Megatron-LM reads and writes where it runs alone.
    row("data.source", "--mock-data", lambda s: not s.hosted and s.config.data.source == "mock"),
    row("data.path data.weights", "--data-path", _data_path),
    row("data.split", "--split", _split),
    row("checkpoint.every", "--save-interval", lambda s: None if s.hosted else s.config.checkpoint.every or None),
    row("checkpoint.async", "--async-save", lambda s: not s.hosted and s.config.checkpoint.async_),
    row("checkpoint.async", "--use-persistent-ckpt-worker", lambda s: not s.hosted and s.config.checkpoint.async_),
    row("logging.every", "--log-interval", lambda s: s.config.logging.every),
    row("logging.level", "--logging-level", lambda s: None if s.hosted else LEVELS[s.config.logging.level]),
    # What this program does in its place where it hosts it.
    row("", "--dataloader-type", lambda s: "external" if s.hosted else None),
    row("", "--rerun-mode", lambda s: "disabled" if s.hosted else None),
    row("", "--no-check-for-nan-in-loss-and-grad", lambda s: s.hosted),
    row("", "--no-one-logger", lambda s: s.hosted),
    row("", "--disable-gloo-process-groups", lambda s: s.hosted),
    row("", "--distributed-backend", lambda s: "gloo" if s.hosted and s.cpu else None),
)
