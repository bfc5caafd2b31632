"""From our configuration to TorchTitan's: the only file that knows both sets of words."""

import math
from collections.abc import Sequence
from typing import Any

from torchtitan.components.loss import BaseLoss, ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.config import CommConfig, CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig

from primus_app.backends.base import RankContext
from primus_app.backends.torchtitan.checkpoints import Checkpoints
from primus_app.backends.torchtitan.evaluator import Evaluator
from primus_app.backends.torchtitan.loader import NoTokenizer, SampleLoader
from primus_app.backends.torchtitan.metrics import StepMetrics
from primus_app.backends.torchtitan.model import build_model_spec
from primus_app.backends.torchtitan.native import apply_native, flatten
from primus_app.backends.torchtitan.optimizer import optimizer_config, schedule_config
from primus_app.backends.torchtitan.recompute import recompute_config
from primus_app.backends.torchtitan.trainer import RunTrainer
from primus_app.config.schema import Config
from primus_app.data.prepared import SplitName
from primus_app.plan.batch import Batch
from primus_app.plan.mesh import Mesh
from primus_app.plan.parameters import training_flops_per_token
from primus_app.plan.stage_rules import stops_at_borders
from primus_app.plan.stages import Stage

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
SCHEDULES = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe", "zero_bubble": "InterleavedZeroBubble"}


def translate(context: RankContext, mesh: Mesh, batch: Batch, stages: Sequence[Stage], *, cpu: bool) -> RunTrainer.Config:
    """TorchTitan's own configuration of this run; a field that is not set keeps upstream's default, and backend.native comes last."""
    config, training = context.config, context.config.training
    spec = build_model_spec(
        config.model,
        seq_len=training.seq_len,
        load_balancing=training.load_balancing,
        sequence_weight=training.aux_loss_coefficient / training.global_batch_size,
        compute=config.precision.compute,
        cpu=cpu,
    )
    native = RunTrainer.Config(
        model_spec=spec,
        hf_assets_path="",
        dump_folder=str(context.run.path),
        tokenizer=NoTokenizer.Config(),
        dataloader=_loader(context, "train"),
        loss=_loss(config),
        optimizer=optimizer_config(config.optimizer),
        lr_scheduler=schedule_config(config.optimizer, config.optimizer.schedule_steps or batch.steps),
        training=_training(config, mesh, batch),
        parallelism=_parallelism(config, mesh, batch, stages),
        checkpoint=_checkpoint(context),
        activation_checkpoint=recompute_config(training),
        compile=CompileConfig(enable=False),
        comm=CommConfig(save_traces_folder=f"attempts/{context.attempt}/comm_traces"),
        metrics=_metrics(config, batch),
        validator=_evaluator(context, mesh, batch),
        debug=DebugConfig(seed=training.seed, deterministic=training.deterministic, enable_structured_logging=False),
    )
    apply_native(native, flatten(config.backend.native))
    return native


def _loader(context: RankContext, split: SplitName) -> SampleLoader.Config:
    training = context.config.training
    return SampleLoader.Config(
        dataset=context.config.data.source,
        prepared=context.data.to_dict(),
        split=split,
        seed=training.seed,
        document_mask=stops_at_borders(context.config),
    )


def _training(config: Config, mesh: Mesh, batch: Batch) -> TrainingConfig:
    clip = config.optimizer.clip_grad_norm
    return TrainingConfig(
        local_batch_size=_local_batch(mesh, batch),
        global_batch_size=batch.global_batch_size,
        seq_len=config.training.seq_len,
        max_norm=clip if clip > 0 else math.inf,
        steps=batch.steps,
        disable_cuda_graphs=True,
        dtype=DTYPES[config.precision.params],
        mixed_precision_param=DTYPES[config.precision.compute],
        mixed_precision_reduce=DTYPES[config.precision.grads],
    )


def _local_batch(mesh: Mesh, batch: Batch) -> int:
    """What TorchTitan calls so: one micro batch, or with a pipeline all of a step, which its schedule divides."""
    return batch.micro_batch_size * (batch.accumulation if mesh.pp > 1 else 1)


def _loss(config: Config) -> BaseLoss.Config:
    """Cross entropy in chunks, to save logits; whole under zero-bubble schedules, whose split backward pass gets chunks wrong."""
    whole = CrossEntropyLoss.Config(global_vocab_size=config.model.vocab_size)
    return whole if config.parallel.schedule == "zero_bubble" else ChunkedLossWrapper.Config(loss_fn=whole)


def _parallelism(config: Config, mesh: Mesh, batch: Batch, stages: Sequence[Stage]) -> ParallelismConfig:
    return ParallelismConfig(
        data_parallel_replicate_degree=mesh.dp_replicate,
        data_parallel_shard_degree=mesh.dp_shard,
        tensor_parallel_degree=mesh.tp,
        enable_sequence_parallel=config.parallel.sequence_parallel,
        context_parallel_degree=mesh.cp,
        expert_parallel_degree=mesh.ep,
        pipeline_parallel_degree=mesh.pp,
        pipeline_parallel_schedule=SCHEDULES[config.parallel.schedule],
        pipeline_parallel_microbatch_size=batch.micro_batch_size,
        module_fqns_per_model_part=[_modules(stage, len(stages)) for stage in stages] if mesh.pp > 1 else None,
        spmd_backend="partial_dtensor",
    )


def _modules(stage: Stage, num_stages: int) -> list[str]:
    """The names of what a pipeline stage holds, so that TorchTitan divides the layers as the plan does."""
    layers = [f"layers.{index}" for index in range(stage.first_layer, stage.first_layer + stage.num_layers)]
    first, last = ["tok_embeddings"], ["norm", "lm_head"]
    return [*(first if stage.index == 0 else []), *layers, *(last if stage.index == num_stages - 1 else [])]


def _checkpoint(context: RankContext) -> Checkpoints.Config:
    config, folder = context.config, context.run.checkpoints_dir
    return Checkpoints.Config(
        enable=config.checkpoint.every > 0 or folder.exists(),
        saves=config.checkpoint.every > 0,
        folder=folder.name,
        interval=max(config.checkpoint.every, 1),
        initial_load_model_only=False,
        last_save_model_only=False,
        keep_latest_k=config.checkpoint.keep,
        async_mode="async" if config.checkpoint.async_ else "disabled",
    )


def _metrics(config: Config, batch: Batch) -> StepMetrics.Config:
    return StepMetrics.Config(
        log_freq=config.logging.every,
        disable_color_printing=True,
        flops_per_token=training_flops_per_token(config.model, config.training.seq_len),
        tokens_per_step=batch.tokens_per_step,
        last_step=batch.steps,
        save_every=config.checkpoint.every,
        peak_tflops=getattr(config.hardware.peak_tflops, config.precision.compute),
    )


def _evaluator(context: RankContext, mesh: Mesh, batch: Batch) -> Evaluator.Config:
    training = context.config.training
    enabled = training.eval_every > 0
    return Evaluator.Config(
        enable=enabled,
        freq=max(training.eval_every, 1),
        steps=training.eval_steps * batch.global_batch_size // (_local_batch(mesh, batch) * mesh.dp),
        last_step=batch.steps,
        dataloader=_loader(context, "valid" if enabled else "train"),
    )


def native_record(config: RunTrainer.Config) -> dict[str, Any]:
    """What is written to native/: TorchTitan's configuration as plain values."""
    return config.to_dict()
