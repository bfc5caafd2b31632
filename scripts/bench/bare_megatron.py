"""One rank of a plain loop over megatron.core, on the model and layout of a request: what overhead is measured against.

The configuration, the layers and the corrections of docs/patches.md are ours, since megatron-core runs on no CPU without them; schedule,
optimizer, its learning-rate schedule and a line on the terminal are as Megatron's own examples have them, and the run's first micro batches
are in memory before training begins. Started by scripts/bench/overhead; rank 0 writes the end of each step to a file.
"""

import json
import os
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

from primus_app.backends.megatron.patches import PATCHES
from primus_app.backends.patches import apply_patches

apply_patches("auto", PATCHES)

from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402

from primus_app.backends.base import RankContext  # noqa: E402
from primus_app.backends.megatron.batches import Share, micro_batches  # noqa: E402
from primus_app.backends.megatron.device import engine_imports  # noqa: E402
from primus_app.backends.megatron.model import build_chunks, native, transformer_config  # noqa: E402
from primus_app.backends.megatron.translate import data_parallel_settings, optimizer_settings, transformer_settings  # noqa: E402
from primus_app.backends.megatron.world import parallel_world  # noqa: E402
from primus_app.data.prepared import PreparedData  # noqa: E402
from primus_app.data.samples import open_samples  # noqa: E402
from primus_app.plan.plan import Plan, make_plan  # noqa: E402
from primus_app.run.directory import RunDirectory  # noqa: E402
from primus_app.run.snapshot import read_config  # noqa: E402

PRELOADED = 64


def context_of(config_file: Path) -> RankContext:
    """The rank that elastic has started, on the configuration and the data of the run that is raced against."""
    data = PreparedData.from_dict(json.loads(config_file.with_name("data.json").read_text()))
    place = {name.lower(): int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return RankContext(config=read_config(config_file), run=RunDirectory(config_file.parents[2]), attempt=0, data=data, **place)


def forward_step(batches: Any, model: Any) -> tuple[torch.Tensor, Any]:
    """As Megatron's schedules ask for it."""
    batch = next(batches)
    return model(batch.tokens, batch.positions, batch.starts, labels=batch.labels), loss


def loss(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """The sum over tokens, their number, and both to be reported."""
    total, number = losses.float().sum(), torch.tensor(losses.numel(), dtype=torch.int)
    return total, number, {"loss": torch.stack([total.detach(), number.float()])}


def train(context: RankContext, plan: Plan, out: Path) -> None:
    """Until somebody stops it."""
    config, batch, mesh = context.config, plan.batch, plan.mesh
    assert batch is not None
    assert mesh is not None
    cpu = not torch.cuda.is_available()
    settings = transformer_config(transformer_settings(config, mesh, plan.stages, cpu=cpu, engine=engine_imports()))
    seq_len = config.training.seq_len
    chunks = build_chunks(settings, config.model, seq_len, engine=engine_imports(), document_mask=config.training.document_mask)
    parallel = DistributedDataParallelConfig(**data_parallel_settings(config, mesh, cpu=True))
    model = [DistributedDataParallel(settings, parallel, chunk) for chunk in chunks]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(**native(optimizer_settings(config, mesh, cpu=True))), model, use_gloo_process_groups=False
    )
    schedule = OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=config.optimizer.lr,
        min_lr=0.0,
        lr_warmup_steps=2,
        lr_decay_steps=batch.steps,
        lr_decay_style="cosine",
        start_wd=config.optimizer.weight_decay,
        end_wd=config.optimizer.weight_decay,
        wd_incr_steps=batch.steps,
        wd_incr_style="constant",
    )
    settings.grad_scale_func, settings.finalize_model_grads_func = optimizer.scale_loss, finalize_model_grads
    share = Share(
        batch.micro_batch_size, parallel_state.get_data_parallel_rank(), mesh.dp, parallel_state.get_context_parallel_rank(), mesh.cp
    )
    samples = open_samples(context.data, "train", seq_len=seq_len, seed=config.training.seed, document_mask=config.training.document_mask)
    device = torch.device("cpu") if cpu else torch.device("cuda", context.local_rank)
    read = micro_batches(samples, 0, PRELOADED, share, document_mask=config.training.document_mask, device=device)
    batches = cycle(list(islice(read, PRELOADED)))
    with (out if context.rank == 0 else Path(os.devnull)).open("w", encoding="utf-8") as ends:
        for step in range(1, batch.steps + 1):
            for chunk in model:
                chunk.zero_grad_buffer()
            optimizer.zero_grad()
            found = get_forward_backward_func()(
                forward_step_func=forward_step,
                data_iterator=[batches for _ in model],
                model=model if len(model) > 1 else model[0],
                num_microbatches=batch.accumulation,
                seq_length=seq_len,
                micro_batch_size=batch.micro_batch_size,
                forward_only=False,
            )
            _, norm, _ = optimizer.step()
            schedule.step(increment=1)
            if found:
                total = torch.stack([each["loss"] for each in found]).sum(0)
                torch.distributed.all_reduce(total, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
                print(f"step {step} loss {(total[0] / total[1]).item():.4f} norm {norm:.3f}", flush=True)
            print(time.time(), file=ends, flush=True)


def main(config_file: str, out: str) -> None:
    """Train as the configuration says and write the ends of the steps to ``out``, in seconds since the epoch."""
    context = context_of(Path(config_file))
    plan = make_plan(context.config, local_devices=context.world_size)
    assert plan.mesh is not None
    with parallel_world(plan.mesh, context):
        train(context, plan, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
