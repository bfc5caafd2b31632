"""The Megatron-core engine behind the contract of ``backends.base``; imports neither torch nor megatron before training."""

import json
import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from primus_app.backends.base import RankContext
from primus_app.backends.megatron.patches import PATCHES
from primus_app.backends.megatron.support import check_support
from primus_app.backends.patches import Patch, check_choice
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig
from primus_app.plan.mesh import Mesh

if TYPE_CHECKING:
    from primus_app.backends.native_tensors import NativeTensor
    from primus_app.backends.saved import Saved

logger = logging.getLogger(__name__)

TIMEOUT = timedelta(minutes=10)


class MegatronBackend:
    """Trains with a loop of our own over megatron.core."""

    name = "megatron"

    def check(self, config: Config, mesh: Mesh | None) -> list[Problem]:
        return [*check_support(config, mesh), *check_choice(config.backend.patches, self.patches())]

    def patches(self) -> Sequence[Patch]:
        return PATCHES

    def check_weights(self, folder: Path) -> list[Problem]:
        from primus_app.backends.stored_tensors import check_stored

        return check_stored(folder, "checkpoint.load")

    def train(self, context: RankContext) -> None:
        import torch

        from primus_app.backends.megatron.model import engine_imports
        from primus_app.backends.megatron.translate import (
            data_parallel_settings,
            optimizer_settings,
            parallel_settings,
            transformer_settings,
        )
        from primus_app.plan.plan import make_plan
        from primus_app.run.files import write_atomic

        cpu = not torch.cuda.is_available()
        plan = make_plan(context.config, local_devices=context.world_size)
        mesh = plan.mesh
        assert mesh is not None
        settings = transformer_settings(context.config, mesh, plan.stages, cpu=cpu, engine=engine_imports())
        if context.rank == 0:
            record = {
                "parallel_state": parallel_settings(mesh),
                "transformer": settings,
                "data_parallel": data_parallel_settings(context.config, mesh),
                "optimizer": optimizer_settings(context.config, mesh),
            }
            context.run.native_dir.mkdir(exist_ok=True)
            write_atomic(context.run.native_dir / "megatron.json", json.dumps(record, indent=2, default=str) + "\n")
        self._train(context, plan, settings)

    def _train(self, context: RankContext, plan: object, settings: dict[str, object]) -> None:
        import torch
        from megatron.core import parallel_state, tensor_parallel

        from primus_app.backends.megatron.trainer import Trainer
        from primus_app.backends.megatron.translate import parallel_settings

        cpu = not torch.cuda.is_available()
        device = torch.device("cpu") if cpu else torch.device("cuda", context.local_rank)
        if not cpu:
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("gloo" if cpu else "nccl", timeout=TIMEOUT)
        parallel_state.initialize_model_parallel(**parallel_settings(plan.mesh), create_gloo_process_groups=False)
        torch.manual_seed(context.config.training.seed)
        tensor_parallel.model_parallel_cuda_manual_seed(context.config.training.seed % 2**31)
        trainer = Trainer(context, plan, settings, device)
        try:
            trainer.begin()
            trainer.train()
        finally:
            trainer.close()
            parallel_state.destroy_model_parallel()
            torch.distributed.destroy_process_group()

    def open_saved(self, model: ModelConfig, step_folder: Path) -> "Saved":
        from primus_app.backends.megatron.stored import open_step

        return open_step(model, step_folder)

    def native_tensors(self, model: ModelConfig) -> "Sequence[NativeTensor]":
        from primus_app.backends.megatron.stored import native_tensors

        return native_tensors(model)

    def write_marks(self, folder: Path) -> None:
        from primus_app.backends.megatron.stored import write_marks

        write_marks(folder)


BACKEND = MegatronBackend()
