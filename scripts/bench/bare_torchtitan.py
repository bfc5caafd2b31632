"""One rank of TorchTitan's own Trainer with its own parts, on the model and layout of a request: what overhead is measured against.

Only what TorchTitan cannot do without on this device is ours: the patches and stand-ins of docs/patches.md, and a loader whose batches are
in memory before training begins, which no real loader could beat. Started by scripts/bench/overhead; rank 0 writes the end of each step
to a file.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TextIO

import torch

from primus_app.backends.patches import apply_patches
from primus_app.backends.torchtitan.patches import PATCHES

apply_patches("auto", PATCHES)

from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer  # noqa: E402
from torchtitan.components.optimizer.optimizer import ParamGroupConfig  # noqa: E402
from torchtitan.config import CompileConfig, DebugConfig  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

from primus_app.backends.torchtitan.device import device_type  # noqa: E402
from primus_app.backends.torchtitan.loader import NoTokenizer, SampleLoader  # noqa: E402
from primus_app.backends.torchtitan.model import build_model_spec  # noqa: E402
from primus_app.backends.torchtitan.recompute import recompute_config  # noqa: E402
from primus_app.backends.torchtitan.translate import _parallelism, _training  # noqa: E402
from primus_app.config.schema import Config  # noqa: E402
from primus_app.plan.plan import make_plan  # noqa: E402
from primus_app.run.snapshot import read_config  # noqa: E402


class Preloaded(BaseDataLoader):
    """The run's own first micro batches, over and over."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        samples: SampleLoader.Config
        number: int = 64

    def __init__(self, config: Config, **place: Any) -> None:
        self._batches = list(islice(SampleLoader(config.samples, **place), config.number))

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        return cycle(self._batches)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        return None


class TimedTrainer(Trainer):
    """Notes when each step has ended, on rank 0, a line each."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    ends: TextIO | None = None

    def train_step(self, *args: Any, **kwargs: Any) -> None:
        super().train_step(*args, **kwargs)
        if self.ends:
            print(time.time(), file=self.ends, flush=True)


def bare_config(config: Config, data: dict[str, Any], world_size: int, folder: Path) -> TimedTrainer.Config:
    """TorchTitan's configuration of ``config``'s model, layout, batch and prepared ``data``; the rest as upstream has it."""
    plan = make_plan(config, local_devices=world_size)
    assert plan.mesh is not None
    assert plan.batch is not None
    cpu = device_type() == "cpu"
    spec = build_model_spec(
        config.model,
        seq_len=config.training.seq_len,
        load_balancing=config.training.load_balancing,
        compute=config.precision.compute,
        cpu=cpu,
    )
    samples = SampleLoader.Config(
        dataset=config.data.source, prepared=data, split="train", seed=config.training.seed, document_mask=config.training.document_mask
    )
    optimizer = ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": config.optimizer.lr})
    return TimedTrainer.Config(
        model_spec=spec,
        dump_folder=str(folder),
        tokenizer=NoTokenizer.Config(),
        dataloader=Preloaded.Config(samples=samples),
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=config.model.vocab_size)),
        optimizer=OptimizersContainer.Config(param_groups=[optimizer]),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2, total_steps=plan.batch.steps),
        training=_training(config, plan.mesh, plan.batch),
        parallelism=_parallelism(config, plan.mesh, plan.batch, plan.stages),
        activation_checkpoint=recompute_config(config.training),
        compile=CompileConfig(enable=False),
        metrics=MetricsProcessor.Config(log_freq=config.logging.every, enable_tensorboard=config.logging.tensorboard),
        debug=DebugConfig(seed=config.training.seed, enable_structured_logging=False),
    )


def main(config_file: str, out: str) -> None:
    """Train as the configuration says and write the ends of the steps to ``out``, in seconds since the epoch."""
    if device_type() == "cpu":
        torch.compiler.set_stance("force_eager")
    config = read_config(Path(config_file))
    world = int(os.environ["WORLD_SIZE"])
    data = json.loads(Path(config_file).with_name("data.json").read_text())
    trainer = bare_config(config, data, world, Path(out).parent).build()
    if device_type() == "cpu":
        for module in (module for part in trainer.model_parts for module in part.modules() if isinstance(module, FSDPModule)):
            module.set_force_sum_reduction_for_comms(True)
    with Path(out if torch.distributed.get_rank() == 0 else os.devnull).open("w", encoding="utf-8") as trainer.ends:
        trainer.train()
    trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
