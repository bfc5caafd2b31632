"""One rank of TorchTitan's own Trainer with its own parts, on the model and layout of a request: what overhead is measured against.

Only what TorchTitan cannot do without on this device is ours: the patches and stand-ins of docs/patches.md, and a loader of one batch that
is in memory already, which no real loader could beat. Started by scripts/bench/overhead; writes the end of each step to the given file.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from primus_app.backends.torchtitan.loader import NoTokenizer  # noqa: E402
from primus_app.backends.torchtitan.model import build_model_spec  # noqa: E402
from primus_app.backends.torchtitan.translate import RECOMPUTE, _parallelism, _training  # noqa: E402
from primus_app.config.schema import Config  # noqa: E402
from primus_app.plan.plan import make_plan  # noqa: E402
from primus_app.run.snapshot import read_config  # noqa: E402


class OneBatch(BaseDataLoader):
    """The same micro batch for ever."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        vocab_size: int

    def __init__(self, config: Config, *, seq_len: int, local_batch_size: int, **unused: Any) -> None:
        tokens = torch.randint(config.vocab_size, (local_batch_size, seq_len + 1), generator=torch.Generator().manual_seed(1))
        positions = torch.arange(seq_len).repeat(local_batch_size, 1)
        self._batch = ({"input": tokens[:, :-1].contiguous(), "positions": positions}, tokens[:, 1:].contiguous())

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            yield self._batch

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        return None


class TimedTrainer(Trainer):
    """Notes when each step has ended."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    ends: tuple[float, ...] = ()

    def train_step(self, *args: Any, **kwargs: Any) -> None:
        super().train_step(*args, **kwargs)
        self.ends = (*self.ends, time.time())


def bare_config(config: Config, world_size: int, folder: Path) -> TimedTrainer.Config:
    """TorchTitan's configuration of ``config``'s model, layout and batch; the rest as upstream has it."""
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
    optimizer = ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": config.optimizer.lr})
    return TimedTrainer.Config(
        model_spec=spec,
        dump_folder=str(folder),
        tokenizer=NoTokenizer.Config(),
        dataloader=OneBatch.Config(vocab_size=config.model.vocab_size),
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=config.model.vocab_size)),
        optimizer=OptimizersContainer.Config(param_groups=[optimizer]),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2, total_steps=plan.batch.steps),
        training=_training(config, plan.mesh, plan.batch),
        parallelism=_parallelism(config, plan.mesh, plan.batch, plan.stages),
        activation_checkpoint=RECOMPUTE[config.training.recompute](),
        compile=CompileConfig(enable=False),
        metrics=MetricsProcessor.Config(log_freq=config.logging.every, enable_tensorboard=config.logging.tensorboard),
        debug=DebugConfig(seed=config.training.seed, enable_structured_logging=False),
    )


def main(config_file: str, out: str) -> None:
    """Train as the configuration says and write {"ends": seconds, "peak_mib": of this rank} to ``out``, on rank 0."""
    if device_type() == "cpu":
        torch.compiler.set_stance("force_eager")
    config = read_config(Path(config_file))
    world = int(os.environ["WORLD_SIZE"])
    trainer = bare_config(config, world, Path(out).parent).build()
    if device_type() == "cpu":
        for module in (module for part in trainer.model_parts for module in part.modules() if isinstance(module, FSDPModule)):
            module.set_force_sum_reduction_for_comms(True)
    trainer.train()
    if torch.distributed.get_rank() == 0:
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        Path(out).write_text(json.dumps({"ends": trainer.ends, "peak_mib": peak_mib}))
    trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
