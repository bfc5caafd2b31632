"""The Megatron-core engine behind the contract of ``backends.base``; imports neither torch nor megatron before training."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_app.backends.base import RankContext
from primus_app.backends.megatron.device import DEVICE_PATCHES, engine_imports, on_cpu
from primus_app.backends.megatron.patches import PATCHES
from primus_app.backends.megatron.pretrain.hooks import Hosting
from primus_app.backends.megatron.support import check_support
from primus_app.backends.megatron.translate import (
    data_parallel_settings,
    optimizer_settings,
    parallel_settings,
    transformer_settings,
)
from primus_app.backends.megatron.versions import check_installed
from primus_app.backends.patches import Patch, check_choice
from primus_app.backends.stored_index import stored_problem
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig
from primus_app.plan.mesh import Mesh
from primus_app.plan.plan import Plan, make_plan
from primus_app.run.files import write_atomic

if TYPE_CHECKING:
    from primus_app.backends.native_tensors import NativeTensor
    from primus_app.backends.saved import Saved


class MegatronBackend:
    """Trains with a loop of our own over megatron.core, or with Megatron-LM's own trainer."""

    name = "megatron"

    def check(self, config: Config, mesh: Mesh | None) -> list[Problem]:
        return [*check_support(config, mesh), *check_choice(config.backend.patches, self.patches()), *_missing_patches(config)]

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
        return stored_problem(folder, "checkpoint.load")

    def train(self, context: RankContext) -> None:
        import torch

        if on_cpu():
            # Small fused functions, each compiled by a C++ compiler for tens of seconds, which fails in a path with spaces.
            torch.compiler.set_stance("force_eager")
        plan = make_plan(context.config, local_devices=context.world_size)
        if context.config.backend.runner == "pretrain":
            _host_pretrain(context, plan)
        else:
            _train(context, plan)

    def open_saved(self, model: ModelConfig, step_folder: Path) -> "Saved":
        from primus_app.backends.megatron.stored import open_step

        return open_step(model, step_folder)

    def native_tensors(self, model: ModelConfig) -> "Sequence[NativeTensor]":
        from primus_app.backends.megatron.stored import native_tensors

        return native_tensors(model)

    def write_marks(self, folder: Path) -> None:
        from primus_app.backends.megatron.stored import write_marks

        write_marks(folder)


def _missing_patches(config: Config) -> list[Problem]:
    """Those that the chosen hardware cannot do without, left out."""
    choice, needed = config.backend.patches, [patch.id for patch in DEVICE_PATCHES]
    left = [] if choice == "auto" else [name for name in needed if name not in choice]
    if config.hardware.vendor != "cpu" or not left:
        return []
    fix = ("backend.patches=auto applies those that are needed",)
    return [Problem("backend.patches", f"megatron-core does not run on a CPU without {', '.join(left)}", fix)]


def _train(context: RankContext, plan: Plan) -> None:
    from primus_app.backends.megatron.trainer import Trainer
    from primus_app.backends.megatron.world import parallel_world

    assert plan.mesh is not None
    settings = transformer_settings(context.config, plan.mesh, plan.stages, cpu=on_cpu(), engine=engine_imports())
    if context.rank == 0:
        _record(context, plan.mesh, settings)
    with parallel_world(plan.mesh, context) as device:
        trainer = Trainer(context, plan, settings, device)
        try:
            trainer.begin()
            trainer.train()
        finally:
            trainer.close()


def _host_pretrain(context: RankContext, plan: Plan) -> None:
    from primus_app.backends.megatron.pretrain.export import as_text
    from primus_app.backends.megatron.pretrain.row import Source
    from primus_app.backends.megatron.pretrain.run import run_pretrain
    from primus_app.backends.megatron.pretrain.table import arguments

    source = Source.of(context.config, plan, cpu=on_cpu(), engine=engine_imports(), hosted=True)
    if context.rank == 0:
        context.run.native_dir.mkdir(exist_ok=True)
        write_atomic(context.run.native_dir / "megatron.args", as_text(arguments(source)))
    run_pretrain(context, plan, source)


def _record(context: RankContext, mesh: Mesh, settings: dict[str, Any]) -> None:
    """What Megatron receives, into native/."""
    record = {
        "parallel_state": parallel_settings(mesh),
        "transformer": settings,
        "data_parallel": data_parallel_settings(context.config, mesh, cpu=on_cpu()),
        "optimizer": optimizer_settings(context.config, mesh, cpu=on_cpu()),
    }
    context.run.native_dir.mkdir(exist_ok=True)
    write_atomic(context.run.native_dir / "megatron.json", json.dumps(record, indent=2) + "\n")


BACKEND = MegatronBackend()
