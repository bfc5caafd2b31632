"""The Megatron-core engine behind the contract of ``backends.base``; imports neither torch nor megatron before training."""

import json
import logging
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from primus_app.backends.base import RankContext, WeightExport
from primus_app.backends.megatron.device import on_cpu
from primus_app.backends.megatron.patches import PATCHES
from primus_app.backends.megatron.pretrain.hooks import Hosting
from primus_app.backends.megatron.support import check_support
from primus_app.backends.megatron.versions import check_installed
from primus_app.backends.patches import Patch, check_choice
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig
from primus_app.plan.mesh import Mesh
from primus_app.plan.plan import Plan

if TYPE_CHECKING:
    from primus_app.backends.saved import Saved

logger = logging.getLogger(__name__)

TIMEOUT = timedelta(minutes=10)


class MegatronBackend:
    """Trains with a loop of our own over megatron.core."""

    name = "megatron"

    def check(self, config: Config, mesh: Mesh | None) -> list[Problem]:
        return [*check_support(config, mesh), *check_choice(config.backend.patches, self.patches())]

    def check_machine(self, config: Config) -> list[Problem]:
        return list(check_installed(config.backend))

    def prepare(self, config: Config) -> None:
        """Its megatron goes before the installed one, and the runner decides which corrections are needed."""
        if config.backend.megatron_path is not None:
            sys.path.insert(0, str(Path(config.backend.megatron_path).expanduser().absolute()))
        Hosting.wanted = config.backend.runner == "pretrain"

    def patches(self) -> Sequence[Patch]:
        return PATCHES

    def check_weights(self, folder: Path) -> list[Problem]:
        from primus_app.backends.torchtitan.load import check_checkpoint

        return check_checkpoint(folder)

    def train(self, context: RankContext) -> None:
        from primus_app.backends.megatron.model import engine_imports
        from primus_app.backends.megatron.translate import (
            data_parallel_settings,
            optimizer_settings,
            parallel_settings,
            transformer_settings,
        )
        from primus_app.plan.plan import make_plan
        from primus_app.run.files import write_atomic

        cpu, engine = on_cpu(), engine_imports()
        plan = make_plan(context.config, local_devices=context.world_size)
        mesh = plan.mesh
        assert mesh is not None
        if context.config.backend.runner == "pretrain":
            self._pretrain(context, plan, cpu=cpu, engine=engine)
            return
        settings = transformer_settings(context.config, mesh, plan.stages, cpu=cpu, engine=engine)
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

    def _pretrain(self, context: RankContext, plan: Plan, *, cpu: bool, engine: bool) -> None:
        from primus_app.backends.megatron.pretrain.export import as_text
        from primus_app.backends.megatron.pretrain.row import Source
        from primus_app.backends.megatron.pretrain.run import run_pretrain
        from primus_app.backends.megatron.pretrain.table import arguments
        from primus_app.run.files import write_atomic

        source = Source.of(context.config, plan, cpu=cpu, engine=engine, hosted=True)
        if context.rank == 0:
            context.run.native_dir.mkdir(exist_ok=True)
            write_atomic(context.run.native_dir / "megatron.args", as_text(arguments(source)))
        run_pretrain(context, plan, source)

    def _train(self, context: RankContext, plan: Plan, settings: dict[str, object]) -> None:
        import torch
        from megatron.core import parallel_state, tensor_parallel

        from primus_app.backends.megatron.trainer import Trainer
        from primus_app.backends.megatron.translate import parallel_settings

        cpu = on_cpu()
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

    def export_hf(self, model: ModelConfig, step_folder: Path, dtype: str) -> WeightExport:
        raise NotImplementedError


BACKEND = MegatronBackend()
