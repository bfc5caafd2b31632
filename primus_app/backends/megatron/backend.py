"""The Megatron-core engine behind the contract of ``backends.base``; imports neither torch nor megatron before training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_app.backends.base import RankContext
from primus_app.backends.megatron.patches import PATCHES
from primus_app.backends.megatron.support import check_support
from primus_app.backends.megatron.translate import (
    data_parallel_settings,
    optimizer_settings,
    parallel_settings,
    transformer_settings,
)
from primus_app.backends.patches import Patch, check_choice
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig
from primus_app.plan.mesh import Mesh
from primus_app.run.files import write_atomic

if TYPE_CHECKING:
    from primus_app.backends.native_tensors import NativeTensor
    from primus_app.backends.saved import Saved


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
        from primus_app.backends.megatron.trainer import Trainer
        from primus_app.backends.megatron.world import parallel_world
        from primus_app.plan.plan import make_plan

        plan = make_plan(context.config, local_devices=context.world_size)
        assert plan.mesh is not None
        cpu = not torch.cuda.is_available()
        settings = transformer_settings(context.config, plan.mesh, plan.stages, cpu=cpu, engine=engine_imports())
        if context.rank == 0:
            _record(context, plan.mesh, settings)
        with parallel_world(plan.mesh, context) as device:
            trainer = Trainer(context, plan, settings, device)
            try:
                trainer.begin()
                trainer.train()
            finally:
                trainer.close()

    def open_saved(self, model: ModelConfig, step_folder: Path) -> "Saved":
        from primus_app.backends.megatron.stored import open_step

        return open_step(model, step_folder)

    def native_tensors(self, model: ModelConfig) -> "Sequence[NativeTensor]":
        from primus_app.backends.megatron.stored import native_tensors

        return native_tensors(model)

    def write_marks(self, folder: Path) -> None:
        from primus_app.backends.megatron.stored import write_marks

        write_marks(folder)


def _record(context: RankContext, mesh: Mesh, settings: dict[str, Any]) -> None:
    """What Megatron receives, into native/."""
    record = {
        "parallel_state": parallel_settings(mesh),
        "transformer": settings,
        "data_parallel": data_parallel_settings(context.config, mesh),
        "optimizer": optimizer_settings(context.config, mesh),
    }
    context.run.native_dir.mkdir(exist_ok=True)
    write_atomic(context.run.native_dir / "megatron.json", json.dumps(record, indent=2) + "\n")


BACKEND = MegatronBackend()
