"""TorchTitan's checkpoints: exactly so many kept, and each told to the run."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from torchtitan.components.checkpointer import CheckpointManager


class Checkpoints(CheckpointManager):
    """``on_saved(step, seconds)`` is called once a checkpoint is complete."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        saves: bool = True
        """Without it checkpoints are only loaded: how often a run saves may change, what it has reached may not."""

    config: Config
    on_saved: Callable[[int, float], None] | None = None

    def __init__(self, config: Config, **parts: object) -> None:
        super().__init__(config, **parts)
        self._saves = config.saves

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        if not self._saves:
            return False
        began = time.perf_counter()
        saved = bool(super()._save(curr_step, last_step))
        if saved and last_step:
            self._purge_stale_checkpoints()  # TorchTitan leaves this out after the last one.
        if saved and self.on_saved:
            self.on_saved(curr_step, time.perf_counter() - began)
        return saved
