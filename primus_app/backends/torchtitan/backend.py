"""The TorchTitan engine behind the contract of ``backends.base``; imports neither torch nor torchtitan before training."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from primus_app.backends.base import RankContext
from primus_app.backends.patches import Patch, check_choice
from primus_app.backends.stored_index import stored_problem
from primus_app.backends.torchtitan.device import CPU_DEVICE_ID
from primus_app.backends.torchtitan.native import flatten
from primus_app.backends.torchtitan.patches import PATCHES
from primus_app.backends.torchtitan.support import check_support
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig
from primus_app.plan.mesh import Mesh

if TYPE_CHECKING:
    from primus_app.backends.native_tensors import NativeTensor
    from primus_app.backends.saved import Saved

logger = logging.getLogger(__name__)


class TorchTitanBackend:
    """Trains with torchtitan's real Trainer."""

    name = "torchtitan"

    def check(self, config: Config, mesh: Mesh | None) -> list[Problem]:
        return [*check_support(config, mesh), *check_choice(config.backend.patches, self.patches()), *_missing_patches(config)]

    def check_machine(self, config: Config) -> list[Problem]:
        return []

    def prepare(self, config: Config) -> None:
        pass

    def patches(self) -> Sequence[Patch]:
        return PATCHES

    def check_weights(self, folder: Path) -> list[Problem]:
        return stored_problem(folder, "checkpoint.load")

    def train(self, context: RankContext) -> None:
        import torch

        from primus_app.backends.torchtitan.device import device_type, leave_out_cpu_warnings
        from primus_app.backends.torchtitan.translate import native_record, translate
        from primus_app.plan.plan import make_plan
        from primus_app.run.files import write_atomic

        cpu = device_type() == "cpu"
        if cpu:
            leave_out_cpu_warnings(seeded=context.config.model.init == "seeded")
        if cpu and not flatten(context.config.backend.native).get("compile.enable"):
            # Compiled only for FlexAttention's mask, at tens of seconds on a CPU.
            torch.compiler.set_stance("force_eager")
        plan = make_plan(context.config, local_devices=context.world_size)
        assert plan.mesh is not None
        assert plan.batch is not None
        native = translate(context, plan.mesh, plan.batch, plan.stages, cpu=cpu)
        if context.rank == 0:
            context.run.native_dir.mkdir(exist_ok=True)
            record = json.dumps(native_record(native), indent=2, default=str)
            write_atomic(context.run.native_dir / "torchtitan.json", record + "\n")
        trainer = native.build()
        try:
            trainer.begin(context)
            trainer.train()
        finally:
            trainer.close()

    def open_saved(self, model: ModelConfig, step_folder: Path) -> "Saved":
        from primus_app.backends.torchtitan.device import prepare_device

        prepare_device()
        from primus_app.backends.torchtitan.stored import open_step

        return open_step(model, step_folder)

    def native_tensors(self, model: ModelConfig) -> "Sequence[NativeTensor]":
        from primus_app.backends.torchtitan.device import prepare_device

        prepare_device()
        from primus_app.backends.torchtitan.stored import native_tensors

        return native_tensors(model)

    def write_marks(self, folder: Path) -> None:
        return None


def _missing_patches(config: Config) -> list[Problem]:
    """A patch that the chosen hardware cannot do without, left out."""
    choice = config.backend.patches
    if config.hardware.vendor != "cpu" or choice == "auto" or CPU_DEVICE_ID in choice:
        return []
    fix = ("backend.patches=auto applies those that are needed",)
    return [Problem("backend.patches", f"TorchTitan does not run on a CPU without the patch {CPU_DEVICE_ID}", fix)]


BACKEND = TorchTitanBackend()
