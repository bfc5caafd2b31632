"""From our configuration to TorchTitan's: the only file that knows both sets of words."""

import math
from typing import Any

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.config import CommConfig, CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC

from primus_app.backends.base import RankContext
from primus_app.backends.torchtitan.checkpoints import Checkpoints
from primus_app.backends.torchtitan.evaluator import Evaluator
from primus_app.backends.torchtitan.loader import NoTokenizer, SampleLoader
from primus_app.backends.torchtitan.metrics import StepMetrics
from primus_app.backends.torchtitan.model import build_model_spec
from primus_app.backends.torchtitan.optimizer import optimizer_config, schedule_config
from primus_app.backends.torchtitan.trainer import RunTrainer
from primus_app.config.schema import Config
from primus_app.data.prepared import SplitName
from primus_app.plan.batch import Batch
from primus_app.plan.mesh import Mesh
from primus_app.plan.parameters import training_flops_per_token

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
RECOMPUTE = {"none": lambda: None, "selective": SelectiveAC.Config, "full": FullAC.Config}


def translate(context: RankContext, mesh: Mesh, batch: Batch, *, cpu: bool) -> RunTrainer.Config:
    """TorchTitan's own configuration of this run; every field that is not set keeps upstream's default."""
    config, training = context.config, context.config.training
    spec = build_model_spec(
        config.model, seq_len=training.seq_len, load_balancing=training.load_balancing, compute=config.precision.compute, cpu=cpu
    )
    return RunTrainer.Config(
        model_spec=spec,
        hf_assets_path="",
        dump_folder=str(context.run.path),
        tokenizer=NoTokenizer.Config(),
        dataloader=_loader(context, "train"),
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=config.model.vocab_size)),
        optimizer=optimizer_config(config.optimizer),
        lr_scheduler=schedule_config(config.optimizer, config.optimizer.schedule_steps or batch.steps),
        training=_training(config, batch),
        parallelism=_parallelism(mesh),
        checkpoint=_checkpoint(config),
        activation_checkpoint=RECOMPUTE[training.recompute](),
        compile=CompileConfig(enable=False),
        comm=CommConfig(save_traces_folder=f"attempts/{context.attempt}/comm_traces"),
        metrics=_metrics(config, batch),
        validator=_evaluator(context, batch),
        debug=DebugConfig(seed=training.seed, deterministic=training.deterministic, enable_structured_logging=False),
    )


def _loader(context: RankContext, split: SplitName) -> SampleLoader.Config:
    training = context.config.training
    return SampleLoader.Config(
        dataset=context.config.data.source,
        prepared=context.data.to_dict(),
        split=split,
        seed=training.seed,
        document_mask=training.document_mask,
    )


def _training(config: Config, batch: Batch) -> TrainingConfig:
    clip = config.optimizer.clip_grad_norm
    return TrainingConfig(
        local_batch_size=batch.micro_batch_size,
        global_batch_size=batch.global_batch_size,
        seq_len=config.training.seq_len,
        max_norm=clip if clip > 0 else math.inf,
        steps=batch.steps,
        disable_cuda_graphs=True,
        dtype=DTYPES[config.precision.params],
        mixed_precision_param=DTYPES[config.precision.compute],
        mixed_precision_reduce=DTYPES[config.precision.grads],
    )


def _parallelism(mesh: Mesh) -> ParallelismConfig:
    return ParallelismConfig(
        data_parallel_replicate_degree=mesh.dp_replicate,
        data_parallel_shard_degree=mesh.dp_shard,
        spmd_backend="partial_dtensor",
    )


def _checkpoint(config: Config) -> Checkpoints.Config:
    return Checkpoints.Config(
        enable=config.checkpoint.every > 0,
        folder="checkpoints",
        interval=max(config.checkpoint.every, 1),
        initial_load_model_only=False,
        last_save_model_only=False,
        keep_latest_k=config.checkpoint.keep,
    )


def _metrics(config: Config, batch: Batch) -> StepMetrics.Config:
    return StepMetrics.Config(
        log_freq=config.logging.every,
        disable_color_printing=True,
        flops_per_token=training_flops_per_token(config.model, config.training.seq_len),
        tokens_per_step=batch.tokens_per_step,
        peak_tflops=getattr(config.hardware.peak_tflops, config.precision.compute),
    )


def _evaluator(context: RankContext, batch: Batch) -> Evaluator.Config:
    training = context.config.training
    enabled = training.eval_every > 0
    return Evaluator.Config(
        enable=enabled,
        freq=max(training.eval_every, 1),
        steps=training.eval_steps * batch.accumulation,
        last_step=batch.steps,
        dataloader=_loader(context, "valid" if enabled else "train"),
    )


def native_record(config: RunTrainer.Config) -> dict[str, Any]:
    """What is written to native/: TorchTitan's configuration as plain values."""
    return config.to_dict()
