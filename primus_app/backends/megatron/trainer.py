"""The training loop over megatron.core: its schedules, data parallelism, optimizer and clipping, with the numbers of this run."""

import itertools
import logging
import time
from collections.abc import Iterator
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.module import Float16Module

from primus_app.backends.agreement import all_well
from primus_app.backends.balance_loss import mean_balance_loss
from primus_app.backends.base import RankContext
from primus_app.backends.divergence import stop_if_diverged
from primus_app.backends.expert_stacks import apart
from primus_app.backends.megatron.batches import MicroBatch, Share, learned_tokens, micro_batches
from primus_app.backends.megatron.checkpoints import Checkpoints
from primus_app.backends.megatron.device import engine_imports, on_cpu
from primus_app.backends.megatron.model import build_chunks, native, transformer_config
from primus_app.backends.megatron.optimizer import build_optimizer, set_main_weights, set_moments, set_rate
from primus_app.backends.megatron.router import balanced_routers
from primus_app.backends.megatron.translate import data_parallel_settings, optimizer_settings
from primus_app.backends.megatron.weights import fill, local_weights
from primus_app.backends.memory import peak_rss_bytes
from primus_app.backends.recorder import Recorder
from primus_app.backends.throughput import throughput
from primus_app.backends.weight_sources import SeededWeights, Source
from primus_app.data.samples import AnySamples, open_samples
from primus_app.plan.learning_rate import learning_rate
from primus_app.plan.parameters import training_flops_per_token
from primus_app.plan.plan import Plan
from primus_app.plan.stage_rules import stops_at_borders
from primus_app.run.checkpoints import complete_checkpoints, newest_checkpoint
from primus_app.run.events import Event, append_event

logger = logging.getLogger(__name__)


class Trainer:
    """One rank of a run; the groups of parallel_state must be there. ``train`` trains to the last step."""

    def __init__(self, context: RankContext, plan: Plan, settings: dict[str, Any], device: torch.device) -> None:
        assert plan.mesh is not None
        assert plan.batch is not None
        self.context, self.config, self.mesh, self.batch, self.device = context, context.config, plan.mesh, plan.batch, device
        self._build(settings)
        self._connect()
        self.step = 0
        self._open_records()

    def _build(self, settings: dict[str, Any]) -> None:
        """Model and optimizer of this rank, and which weights it has."""
        self.transformer = transformer_config(settings)
        training = self.config.training
        self.chunks = build_chunks(
            self.transformer, self.config.model, training.seq_len, engine=engine_imports(), document_mask=stops_at_borders(self.config)
        )
        for chunk in self.chunks:
            chunk.to(self.device)
        self.model = self._wrap()
        self.routers = balanced_routers(self.chunks)
        # Not before: buffers are others once a model is of another format.
        self.weights = local_weights(self.chunks, self.config.model)
        self.optimizer = build_optimizer(OptimizerConfig(**native(optimizer_settings(self.config, self.mesh, cpu=on_cpu()))), self.model)
        self._overlap()

    def _wrap(self) -> list[DistributedDataParallel]:
        settings = DistributedDataParallelConfig(**data_parallel_settings(self.config, self.mesh, cpu=on_cpu()))
        half = self.config.precision.compute != "fp32"
        modules = [Float16Module(self.transformer, chunk) if half else chunk for chunk in self.chunks]
        # Only the first chunk's gradients are worth dividing into buckets that overlap with the backward pass.
        return [
            DistributedDataParallel(self.transformer, settings, module, disable_bucketing=number > 0)
            for number, module in enumerate(modules)
        ]

    def _overlap(self) -> None:
        """What the schedules call so that communication overlaps with computing; Megatron-LM's trainer does so itself (its train())."""
        settings = self.model[0].ddp_config
        if settings.overlap_grad_reduce:
            self.transformer.no_sync_func = _for_each([chunk.no_sync for chunk in self.model])
            self.transformer.grad_sync_func = _for_each([chunk.start_grad_sync for chunk in self.model])
        if settings.overlap_param_gather and settings.align_param_gather:
            self.transformer.param_sync_func = _for_each([chunk.start_param_sync for chunk in self.model])

    def _gather_weights(self) -> None:
        """Those that the next training step would gather while it goes on; after an optimizer step ranks have only their own."""
        for chunk in self.model:
            if chunk.ddp_config.overlap_param_gather:
                chunk.start_param_sync(force_sync=True)

    def _connect(self) -> None:
        """What the schedules call back."""
        self.transformer.grad_scale_func = self.optimizer.scale_loss
        self.transformer.finalize_model_grads_func = finalize_model_grads

    def _open_records(self) -> None:
        context, config = self.context, self.config
        self.share = Share(
            self.batch.micro_batch_size,
            parallel_state.get_data_parallel_rank(),
            parallel_state.get_data_parallel_world_size(),
            parallel_state.get_context_parallel_rank(),
            parallel_state.get_context_parallel_world_size(),
        )
        self.samples = {name: self._open(name) for name in ("train", "valid") if name == "train" or config.training.eval_every}
        self.knows_loss = parallel_state.is_pipeline_last_stage(ignore_virtual=True)
        first = parallel_state.get_data_parallel_rank(with_context_parallel=True) == parallel_state.get_tensor_model_parallel_rank() == 0
        self.recorder = Recorder(context.run, config) if self.knows_loss and first else None
        checkpoint = config.checkpoint
        self.checkpoints = Checkpoints(
            context.run.checkpoints_dir,
            self.chunks,
            self.weights,
            self.optimizer,
            keep=checkpoint.keep if checkpoint.every else 0,  # What a run has reached is not up to one that saves nothing.
            in_background=checkpoint.async_,
            on_saved=self._saved,
        )

    def _open(self, split: Any) -> AnySamples:
        training = self.config.training
        mask = stops_at_borders(self.config)
        return open_samples(self.context.data, split, seq_len=training.seq_len, seed=training.seed, document_mask=mask)

    def _saved(self, step: int) -> None:
        if self.context.rank == 0:
            append_event(self.context.run, Event.CHECKPOINT, attempt=self.context.attempt, step=step)

    def begin(self) -> None:
        """Set the weights: of the newest checkpoint of the run, of checkpoint.load, or the first ones."""
        run, config = self.context.run, self.config
        step = self._resume() if newest_checkpoint(run) is not None else 0
        if not step and config.checkpoint.load is not None:
            self._load(Path(config.checkpoint.load))
        elif not step and config.model.init == "seeded":
            self._set(SeededWeights(config.model, config.training.seed))
        self.step = step
        if self.recorder:
            self.recorder.go_on_after(step, run.attempts_dir / str(self.context.attempt))
        if step and self.context.rank == 0:
            append_event(run, Event.RESUMED, attempt=self.context.attempt, step=step)

    def _set(self, given: Source) -> None:
        source = apart(given, self.config.model)
        fill(self.weights, source)
        set_main_weights(self.optimizer, self.weights, source)

    def _load(self, folder: Path) -> None:
        from primus_app.backends.saved import open_weights

        self._set(open_weights(folder, self.config.model))
        logger.info("the weights are those of %s", folder)

    def _resume(self) -> int:
        """From the newest complete checkpoint that all ranks can read, of either engine; the step."""
        folder = self.context.run.checkpoints_dir
        steps = complete_checkpoints(folder)
        for place, step in enumerate(steps):
            damage = self._take_up(folder, step)
            if all_well(damage is None, self.device):
                self.checkpoints.remove_surplus(step)  # A kill may have come between the last save and this.
                return step
            if place + 1 == len(steps):
                raise RuntimeError(f"no checkpoint in {folder} can be read: {damage or 'another rank cannot'}") from damage
            reason = damage or "another rank cannot read it"
            logger.warning("checkpoint step-%d is damaged, going back to step-%d: %s", step, steps[place + 1], reason)
        return 0

    def _take_up(self, folder: Path, step: int) -> Exception | None:
        """Weights and moments of ``step``; what has gone wrong, None where all is well."""
        from primus_app.backends.saved import open_saved

        try:
            saved = open_saved(folder / f"step-{step}", self.config.model)
            self._set(saved.weights)
            moments = {name: apart(source, self.config.model) for name, source in saved.moments.items()}
            set_moments(self.optimizer, self.weights, step, moments)
        except Exception as error:
            return error
        return None

    def train(self) -> None:
        """Step after step, with evaluations and checkpoints at their times."""
        self._owed_evaluation()
        training, last = self.config.training, self.batch.steps
        self._start_clock()
        while self.step < last:
            self.step += 1
            found, norm = self._train_step()
            loss = self._mean(found) if self._is_looked_at() else None
            self._stop_if_diverged(loss, norm)
            if self._is_logged():
                self._log(loss, norm)
            self._save_if_due()
            if training.eval_every and (self.step % training.eval_every == 0 or self.step == last):
                self.clock += self._evaluate()
        self.checkpoints.finish()

    def _start_clock(self) -> None:
        self.clock, self.logged = time.perf_counter(), self.step
        self.data_time = 0.0
        logger.info("training from step %d to %d", self.step + 1, self.batch.steps)

    def _is_logged(self) -> bool:
        return self.step in (1, self.batch.steps) or self.step % self.config.logging.every == 0

    def _is_saved(self) -> bool:
        every = self.config.checkpoint.every
        return bool(every) and (self.step % every == 0 or self.step == self.batch.steps)

    def _is_looked_at(self) -> bool:
        """Whether the loss of this step is asked for: it is logged, or held against what is no number before weights are saved."""
        return self._is_logged() or self._is_saved()

    def _stop_if_diverged(self, loss: float | None, norm: float) -> None:
        """The norm is known to all ranks at every step, without asking each other."""
        if self._is_looked_at() or not isfinite(norm):
            stop_if_diverged(self.step, loss, norm, self.device)

    def _save_if_due(self) -> None:
        self.checkpoints.look()
        if self._is_saved():
            self.clock += self.checkpoints.save(self.step)

    def _train_step(self) -> tuple[torch.Tensor | None, float]:
        for chunk in self.model:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        optimizer = self.config.optimizer
        rate = learning_rate(optimizer, self.step, optimizer.schedule_steps or self.batch.steps)
        set_rate(self.optimizer, rate, optimizer.weight_decay)
        first = (self.step - 1) * self.batch.global_batch_size
        self._balance(first)
        found = self._forward_backward("train", first, self.batch.accumulation, forward_only=False)
        _, norm, _ = self.optimizer.step()
        return found, float(norm)

    def _balance(self, first: int) -> None:
        """Tell the routers what a sequence of this step counts; also on stages that see no label."""
        if not self.routers:
            return
        tokens = torch.tensor(self.batch.tokens_per_step, device=self.device)
        if self.config.data.source == "instructions":
            tokens = torch.tensor(learned_tokens(self.samples["train"], first, self.batch.accumulation, self.share), device=self.device)
            dist.all_reduce(tokens, group=parallel_state.get_data_parallel_group())
        for router in self.routers:
            router.sequence_weight = tokens.item() / self.batch.global_batch_size
            router.tally = torch.zeros((), device=self.device)

    def _forward_backward(self, split: str, first: int, number: int, *, forward_only: bool) -> torch.Tensor | None:
        """[sum of the losses, number of tokens] over this rank's ``number`` micro batches; None before the last stage."""
        losses = get_forward_backward_func()(
            forward_step_func=self._forward_step,
            data_iterator=[self._batches(split, first, number, chunk) for chunk in self.chunks],
            model=self.model if len(self.model) > 1 else self.model[0],
            num_microbatches=number,
            seq_length=self.config.training.seq_len,
            micro_batch_size=self.batch.micro_batch_size,
            forward_only=forward_only,
        )
        return torch.stack([each["loss"] for each in losses]).sum(0) if losses else None

    def _batches(self, split: str, first: int, number: int, chunk: Any) -> Iterator[MicroBatch | None]:
        mask = stops_at_borders(self.config)
        if not (chunk.pre_process or chunk.post_process or mask):
            return itertools.repeat(None, number)
        return micro_batches(self.samples[split], first, number, self.share, document_mask=mask, device=self.device)

    def _forward_step(self, batches: Iterator[MicroBatch | None], chunk: Any) -> tuple[torch.Tensor, Any]:
        began = time.perf_counter()
        batch = next(batches)
        self.data_time += time.perf_counter() - began
        if batch is None:
            return chunk(None, None, None), _sum_of_losses  # Which only the last stage is asked for.
        loss = partial(_sum_of_losses, learned=batch.learned)
        return chunk(batch.tokens, batch.positions, batch.starts, labels=batch.labels), loss

    def _mean(self, found: torch.Tensor | None) -> float | None:
        """The loss of the global batch, on the ranks that know it."""
        if found is None:
            return None
        total = found.clone()
        dist.all_reduce(total, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
        return (total[0] / total[1]).item()

    def _rate(self) -> float:
        """The learning rate of this step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def _log(self, loss: float | None, norm: float) -> None:
        elapsed, steps = time.perf_counter() - self.clock, self.step - self.logged
        tokens = steps * self.batch.tokens_per_step / self.mesh.world
        flops = training_flops_per_token(self.config.model, self.config.training.seq_len)
        balanced = self.config.training.load_balancing == "aux_loss"
        balance = mean_balance_loss([router.tally for router in self.routers], self.config, self.device) if balanced else None
        peak = getattr(self.config.hardware.peak_tflops, self.config.precision.compute)
        if self.recorder:
            values = {
                "loss": loss,
                **({"balance_loss": balance} if balanced else {}),
                "grad_norm": norm,
                "lr": self._rate(),
                "tokens": self.step * self.batch.tokens_per_step,
                "step_time_s": elapsed / steps,
                "data_time_s": self.data_time / steps,
                **throughput(tokens, elapsed, flops, peak),
                "memory_gib": self._peak_memory() / 2**30,
            }
            self.recorder.record(self.step, values)
        self.clock, self.logged, self.data_time = time.perf_counter(), self.step, 0.0

    def _peak_memory(self) -> int:
        if self.device.type == "cpu":
            return peak_rss_bytes()
        peak = torch.cuda.max_memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        return int(peak)

    def _owed_evaluation(self) -> None:
        """One that the last attempt did not come to: the checkpoint of a step is written before its evaluation."""
        every = self.config.training.eval_every
        if not self.step or not every or (self.step % every and self.step != self.batch.steps):
            return
        done = torch.tensor(int(bool(self.recorder and self.recorder.has(self.step, "eval_loss"))), device=self.device)
        dist.all_reduce(done, dist.ReduceOp.MAX)
        if not done.item():
            self.data_time = 0.0
            self._evaluate()

    @torch.no_grad()
    def _evaluate(self) -> float:
        """The same first batches of the split each time; the seconds it took, which are no training step's."""
        began, data_time = time.perf_counter(), self.data_time
        self._gather_weights()
        for chunk in self.model:
            chunk.eval()
        found = [self._evaluate_batch(number) for number in range(self.config.training.eval_steps)]
        loss = self._mean(torch.stack([each for each in found if each is not None]).sum(0) if self.knows_loss else None)
        for chunk in self.model:
            chunk.train()
        elapsed, self.data_time = time.perf_counter() - began, data_time
        if self.recorder:
            self.recorder.record(self.step, {"eval_loss": loss, "eval_time_s": elapsed})
        return elapsed

    def _evaluate_batch(self, number: int) -> torch.Tensor | None:
        """A global batch of the validation split; a checkpoint that is written in the background need not wait for the others."""
        first = number * self.batch.global_batch_size
        found = self._forward_backward("valid", first, self.batch.accumulation, forward_only=True)
        self.checkpoints.look()
        return found

    def close(self) -> None:
        """The files; the groups are the caller's."""
        self.checkpoints.close()
        if self.recorder:
            self.recorder.close()


def _for_each(calls: list[Any]) -> Any:
    """As the schedules take them: of several chunks a list, of one the call itself."""
    return calls if len(calls) > 1 else calls[0]


def _sum_of_losses(losses: torch.Tensor, learned: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """What a schedule asks for per micro batch: the sum that gradients are of, the number of tokens, and what we report of them."""
    if learned is None:
        total, number = losses.float().sum(), torch.tensor(losses.numel(), dtype=torch.int, device=losses.device)
    else:
        total, number = (losses.float() * learned).sum(), learned.sum().int()
    return total, number, {"loss": torch.stack([total.detach().double(), number.double()])}
