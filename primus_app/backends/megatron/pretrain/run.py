"""Runs Megatron-LM's ``pretrain`` on this rank, with our weights, samples and records in it."""

import importlib
import logging
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.utils import get_model_config

from primus_app.backends.base import RankContext
from primus_app.backends.megatron.device import on_cpu
from primus_app.backends.megatron.model import build_chunk, transformer_config
from primus_app.backends.megatron.pretrain.hooks import Hosting
from primus_app.backends.megatron.pretrain.recorded_arguments import facts_of, misfits, nearest_recorded, recorded
from primus_app.backends.megatron.pretrain.row import Source
from primus_app.backends.megatron.pretrain.table import arguments, as_argv
from primus_app.backends.megatron.trainer import Trainer
from primus_app.backends.megatron.versions import installed_version
from primus_app.backends.megatron.weights import local_weights
from primus_app.plan.plan import Plan
from primus_app.plan.stage_rules import stops_at_borders

logger = logging.getLogger(__name__)

OURS = ("deallocate_pipeline_outputs", "original_max_position_embeddings", "beta_fast", "beta_slow")
"""Fields of the model's configuration that no argument says, and which the model therefore takes from us."""

EQUAL = ("cp_comm_type", "inference_sampling_seed")
"""Fields whose values mean the same, p2p being what None comes to, or nothing in training."""


def run_pretrain(context: RankContext, plan: Plan, source: Source) -> None:
    """Train to the last step.

    Raises:
        RuntimeError: where this Megatron-LM does not take our arguments, or makes another model of them.
    """
    found = arguments(source)
    check_parser(found, installed_version(context.config.backend.megatron_path) or "")
    training: Any = importlib.import_module("megatron.training")
    model_type = importlib.import_module("megatron.core.enums").ModelType.encoder_or_decoder
    host = Hosting.host = PretrainHost(context, plan, source)
    if source.cpu:
        torch.compiler.set_stance("force_eager")  # Its warm-up would compile for a device that is not there.
    sys.argv = ["pretrain", *as_argv(found)]
    try:
        training.pretrain(host.datasets, host.model, model_type, host.forward_step)
        host.finish()
    finally:
        host.close()
    if dist.is_initialized():  # After a clean end alone, as in world.parallel_world.
        dist.destroy_process_group()


def check_parser(found: list[tuple[str, list[str]]], version: str) -> None:
    """Hold ``found`` against the parser of the Megatron-LM that is there."""
    add = importlib.import_module("megatron.training.arguments").add_megatron_arguments
    facts = facts_of(add(ArgumentParser(allow_abbrev=False)))
    if wrong := list(misfits(found, facts, recorded(nearest_recorded(version)))):
        raise RuntimeError(f"Megatron-LM {version} takes other arguments than this program was written for: {'; '.join(wrong)}")


def check_model(ours: Any, theirs: Any) -> None:
    """Whether the arguments make the model's configuration that the core runner has."""
    differing = [
        f"{field.name} is {getattr(theirs, field.name)!r} and not {getattr(ours, field.name)!r}"
        for field in fields(ours)
        if field.name not in (*OURS, *EQUAL) and not _same(getattr(ours, field.name), getattr(theirs, field.name, None))
    ]
    if differing:
        raise RuntimeError(f"Megatron-LM makes another model of our arguments: {'; '.join(differing)}")


def _same(ours: Any, theirs: Any) -> bool:
    """Functions made for one configuration are different ones each time; a flag that is not given is None to some of the parser."""
    return ours == theirs or (ours is False and theirs is None) or (callable(ours) and callable(theirs) and not isinstance(ours, type))


class PretrainHost:
    """What this program does within the trainer of Megatron-LM."""

    def __init__(self, context: RankContext, plan: Plan, source: Source) -> None:
        self._context, self._plan, self._source = context, plan, source
        self._trainer: HostedTrainer | None = None

    @property
    def trainer(self) -> "HostedTrainer":
        assert self._trainer is not None
        return self._trainer

    def model(self, pre_process: bool = True, post_process: bool = True, vp_stage: int | None = None, **unused: Any) -> Any:
        """One chunk, as the core runner builds it; a model_provider of Megatron-LM."""
        config = self._context.config
        ours = transformer_config(self._source.settings)
        make = importlib.import_module("megatron.training.arguments").core_transformer_config_from_args
        check_model(ours, make(_megatron_arguments()))
        return build_chunk(ours, config.model, config.training.seq_len, vp_stage, document_mask=stops_at_borders(config))

    def begin(self, model: list[Any], optimizer: Any, scheduler: Any) -> None:
        device = torch.device("cpu") if on_cpu() else torch.device("cuda", self._context.local_rank)
        trainer = self._trainer = HostedTrainer(self._context, self._plan, device, model, optimizer)
        trainer.begin()
        told = _megatron_arguments()
        told.iteration = trainer.step
        told.consumed_train_samples = trainer.step * trainer.batch.global_batch_size
        scheduler.step(told.consumed_train_samples)
        trainer.ready()

    def datasets(self, sizes: Any, vp_stage: int | None = None) -> tuple[Iterator[Any], None, None]:
        """The samples of training in our order, without end; our evaluation opens its own."""
        return self.trainer.endless(vp_stage or 0), None, None

    datasets.is_distributed = True  # type: ignore[attr-defined]

    def forward_step(self, batches: Iterator[Any], chunk: Any) -> tuple[torch.Tensor, Any]:
        return self.trainer.forward_step(batches, chunk)

    def stepped(self, step: int, losses: dict[str, Any], norm: Any) -> None:
        self.trainer.stepped(step, losses, norm)

    def evaluate(self, step: int) -> None:
        self.trainer.evaluate_once(step)

    def finish(self) -> None:
        self.trainer.checkpoints.finish()

    def close(self) -> None:
        if self._trainer is not None:
            self._trainer.close()


def _megatron_arguments() -> Any:
    return importlib.import_module("megatron.training").get_args()


class HostedTrainer(Trainer):
    """Records, checkpoints, samples and evaluations of the core runner around a model and an optimizer that Megatron-LM has built."""

    def __init__(self, context: RankContext, plan: Plan, device: torch.device, model: list[Any], optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer
        super().__init__(context, plan, {}, device)

    def _build(self, settings: dict[str, Any]) -> None:
        unwrap = importlib.import_module("megatron.core.utils").unwrap_model
        self.chunks = unwrap(self.model)
        self.transformer = get_model_config(self.chunks[0])
        self.weights = local_weights(self.chunks, self.config.model)

    def ready(self) -> None:
        """Weights and schedule are set."""
        self._owed_evaluation()
        self.evaluated = self.step
        self.next_rate = super()._rate()
        self._start_clock()

    def endless(self, chunk: int) -> Iterator[Any]:
        """Micro batches of this rank from the next step on."""
        step = self.step
        while True:
            first = step * self.batch.global_batch_size
            yield from self._batches("train", first, self.batch.accumulation, self.chunks[chunk])
            step += 1

    def forward_step(self, batches: Iterator[Any], chunk: Any) -> tuple[torch.Tensor, Any]:
        return self._forward_step(batches, chunk)

    def stepped(self, step: int, losses: dict[str, Any], norm: Any) -> None:
        """``step`` is trained; the optimizer has the rate of the next one already."""
        self.step = step
        loss = float(losses["loss"]) if losses and self._is_looked_at() else None
        self._stop_if_diverged(loss, float(norm))
        if self._is_logged():
            self._log(loss, float(norm))
        self.next_rate = super()._rate()
        self._save_if_due()

    def evaluate_once(self, step: int) -> None:
        """Unless this step was evaluated already; Megatron-LM asks again after the last one."""
        if step != self.evaluated:
            self.evaluated = step
            self.clock += self._evaluate()

    def _rate(self) -> float:
        return self.next_rate
