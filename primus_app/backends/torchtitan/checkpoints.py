"""TorchTitan's checkpoints, told in the run's events."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from torchtitan.components.checkpointer import CheckpointManager

logger = logging.getLogger(__name__)


class Checkpoints(CheckpointManager):
    """Calls ``on_saved`` with the step once a checkpoint is complete, ``on_loaded`` with the step training goes on from."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        pass

    on_saved: Callable[[int], None] | None = None

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        saved = bool(super()._save(curr_step, last_step))
        if saved and self.on_saved:
            self.on_saved(curr_step)
        return saved
