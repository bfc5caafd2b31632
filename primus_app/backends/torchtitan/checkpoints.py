"""TorchTitan's checkpoints: exactly so many kept, and each told to the run."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.checkpoint.api import CheckpointException
from torchtitan.components.checkpointer import CheckpointManager

from primus_app.run.checkpoints import complete_checkpoints

logger = logging.getLogger(__name__)


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

    def _load(self, step: int = -1) -> bool:
        """From the newest complete checkpoint; a damaged one is passed over, with a warning, for the next older."""
        steps = complete_checkpoints(Path(self.folder)) if step == -1 else []
        for place, candidate in enumerate(steps):
            try:
                return bool(super()._load(candidate))
            except CheckpointException as error:
                if place + 1 == len(steps):
                    raise
                older = steps[place + 1]
                logger.warning("checkpoint step-%d is damaged, going back to step-%d: %s", candidate, older, error)
        return bool(super()._load(step))

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
