"""TorchTitan's own Trainer, with the weights, records and collectives of this run."""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.fsdp import FSDPModule
from torchtitan.components.metrics import _get_metrics_rank
from torchtitan.trainer import Trainer

from primus_app.backends.agreement import all_well
from primus_app.backends.balance_loss import mean_balance_loss
from primus_app.backends.base import RankContext
from primus_app.backends.divergence import diverged
from primus_app.backends.recorder import Recorder
from primus_app.backends.saved import open_saved
from primus_app.backends.torchtitan.checkpoints import Checkpoints, DamagedStep
from primus_app.backends.torchtitan.load import load_weights
from primus_app.backends.torchtitan.metrics import StepMetrics
from primus_app.backends.torchtitan.router import BalancedRouter, balanced_routers
from primus_app.backends.torchtitan.take_over import set_schedule, take_over
from primus_app.backends.torchtitan.weights import init_seeded
from primus_app.run.checkpoints import newest_checkpoint
from primus_app.run.events import Event, append_event

logger = logging.getLogger(__name__)

_NOT_FINITE = re.compile(r"Loss is not finite \(global_avg_loss=(\S+)\)")
"""How TorchTitan's own error begins, which has no type of its own (torchtitan/trainer.py, train_step)."""

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]


class RunTrainer(Trainer):
    """The stock trainer; ``begin`` must come between building and training."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    recorder: Recorder | None = None
    routers: list[BalancedRouter]
    context: RankContext

    def begin(self, context: RankContext) -> None:
        """Set the first weights and open the records; a checkpoint that is loaded later replaces the weights."""
        self.context, config = context, context.config
        if self.device.type == "cpu":
            self._reduce_by_sum()
        self._set_weights()
        if context.rank == _get_metrics_rank(
            parallel_dims=self.parallel_dims, pp_schedule=self.config.parallelism.pipeline_parallel_schedule
        ):
            self.recorder = Recorder(context.run, config)
        assert isinstance(self.metrics_processor, StepMetrics)
        self.metrics_processor.recorder = self.recorder
        assert isinstance(self.checkpointer, Checkpoints)
        self.checkpointer.on_saved = self._saved
        self.checkpointer.take_over = self._take_over
        self.checkpointer.on_pause = self.metrics_processor.leave_out
        self._balance()

    def _balance(self) -> None:
        """Tell the routers with a balance loss which ranks divide a sequence, and the metrics to show it."""
        self.routers = balanced_routers(self.model_parts)
        for router in self.routers:
            router.context_group = self.parallel_dims.get_mesh("cp").get_group() if self.parallel_dims.cp_enabled else None
        config = self.context.config
        if config.training.load_balancing == "aux_loss":
            assert isinstance(self.metrics_processor, StepMetrics)
            self.metrics_processor.balance = lambda: mean_balance_loss([router.tally for router in self.routers], config, self.device)

    def train_step(self, data_iterator: Iterator[Batch]) -> None:
        """As upstream's; the balance loss is that of this step alone."""
        for router in self.routers:
            router.tally.zero_()
        try:
            super().train_step(data_iterator)
        except RuntimeError as error:
            if found := _NOT_FINITE.match(str(error)):
                raise diverged(self.step, found[1]) from error
            raise

    def _set_weights(self) -> None:
        config = self.context.config
        adapter = self.config.model_spec.state_dict_adapter(self.model_config, None)
        if config.checkpoint.load is not None and newest_checkpoint(self.context.run) is None:
            load_weights(self.model_parts, config.model, Path(config.checkpoint.load), adapter)
        elif config.model.init == "seeded":
            init_seeded(self.model_parts, config.model, config.training.seed, adapter)

    def batch_generator(self, data_iterable: Iterable[Batch]) -> Iterator[Batch]:
        """Asked for by ``train`` once it has loaded a checkpoint, or found none: here it is known which step comes next."""
        assert isinstance(self.metrics_processor, StepMetrics)
        self.metrics_processor.go_on_after(self.step)
        if self.recorder:
            self.recorder.go_on_after(self.step, self.context.run.attempts_dir / str(self.context.attempt))
        if self.step and self.context.rank == 0:
            append_event(self.context.run, Event.RESUMED, attempt=self.context.attempt, step=self.step)
        if self.step and self._owes_evaluation():
            self.validator.validate(self.model_parts, self.step)
        return super().batch_generator(data_iterable)

    def _owes_evaluation(self) -> bool:
        """Whether the last attempt ended between the checkpoint of this step and its evaluation, which comes after it."""
        if not self.config.validator.enable or not self.validator.should_validate(self.step):
            return False
        done = bool(self.recorder and self.recorder.has(self.step, "eval_loss"))
        answer = torch.tensor(int(done), device=self.device)
        torch.distributed.all_reduce(answer, torch.distributed.ReduceOp.MAX)  # Only one rank has the records.
        return not answer.item()

    def _saved(self, step: int) -> None:
        if self.context.rank == 0:
            append_event(self.context.run, Event.CHECKPOINT, attempt=self.context.attempt, step=step)

    def _take_over(self, step: int) -> None:
        """Go on from a step of another engine, as from one of this: weights, optimizer, schedule, data and the trainer's own counts."""
        config, folder = self.context.config, self.context.run.checkpoints_dir / f"step-{step}"
        adapter = self.config.model_spec.state_dict_adapter(self.model_config, None)
        damage: Exception | None = None
        try:
            take_over(self.model_parts, self.optimizers, config.model, adapter, open_saved(folder, config.model), step)
        except Exception as error:  # A pickle that is damaged may raise anything.
            damage = error
        if not all_well(damage is None, self.device):
            raise DamagedStep(f"{type(damage).__name__}: {damage}" if damage else "another rank cannot read it") from damage
        set_schedule(self.lr_schedulers, step)
        training = self.config.training
        samples = step * training.global_batch_size
        self.dataloader.load_state_dict({"global_samples": samples})
        ranks = self.parallel_dims.dp_replicate * self.parallel_dims.dp_shard
        self.load_state_dict({"step": step, "ntokens_seen": samples * training.seq_len // ranks})
        logger.info("goes on from step %d of %s, which another engine has written", step, folder)

    def _reduce_by_sum(self) -> None:
        """gloo has no scaled sum, which FSDP2 asks for because TorchTitan sets its divide factor to 1."""
        for part in self.model_parts:
            for module in part.modules():
                if isinstance(module, FSDPModule):
                    module.set_force_sum_reduction_for_comms(True)

    def close(self) -> None:
        super().close()
        if self.recorder:
            self.recorder.close()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
