"""TorchTitan's checkpoints: exactly so many kept, and each told to the run once it is complete."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torchtitan.components.checkpointer import CheckpointManager

from primus_app.backends.stored_folder import engine_of
from primus_app.run.checkpoints import complete_checkpoints, surplus_checkpoints, unmark
from primus_app.run.reserve import full_disk_note

logger = logging.getLogger(__name__)


class DamagedStep(Exception):  # noqa: N818 — what was found, as CheckpointException of torch
    """A step of another engine that cannot be read."""


class Checkpoints(CheckpointManager):
    """``on_saved(step)`` is called on every rank once a checkpoint is complete, ``on_pause(seconds)`` with the time training stood still.

    Written in the background, a checkpoint is found complete, or failed, when the trainer next asks for one, which it does at
    the end of every step.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        saves: bool = True
        """Without it checkpoints are only loaded: how often a run saves may change, what it has reached may not."""

    config: Config
    save_future: Future[None] | None
    on_saved: Callable[[int], None] | None = None
    on_pause: Callable[[float], None] | None = None
    take_over: Callable[[int], None] | None = None
    """Goes on from a step that another engine has written; raises DamagedStep on every rank where one of them cannot read it."""
    _under_way: int = 0
    """The step that is being written in the background while ``save_future`` is there."""

    def __init__(self, config: Config, **parts: object) -> None:
        super().__init__(config, **parts)
        self._saves = config.saves

    def _load(self, step: int = -1) -> bool:
        """From the newest complete checkpoint; a damaged one is passed over, with a warning, for the next older."""
        steps = complete_checkpoints(Path(self.folder)) if step == -1 else []
        for place, candidate in enumerate(steps):
            try:
                loaded = self._load_step(candidate)
            except (CheckpointException, DamagedStep) as error:
                if place + 1 == len(steps):
                    raise
                older = steps[place + 1]
                logger.warning("checkpoint step-%d is damaged, going back to step-%d: %s", candidate, older, error)
            else:
                self._remove_surplus(candidate)  # A kill may have come between the last save and this.
                return loaded
        return bool(super()._load(step))

    def _load_step(self, step: int) -> bool:
        if engine_of(Path(self._create_checkpoint_id(step))) == "torchtitan":
            return bool(super()._load(step))
        assert self.take_over is not None
        self.take_over(step)
        return True

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        if not self._saves:
            return False
        if self.save_future is not None and self.save_future.done():
            self.maybe_wait_for_saving()
        if not self._should_save(curr_step, last_step):
            return False
        began = time.perf_counter()
        if torch.distributed.get_rank() == 0:
            # Writing over a damaged one, maybe of another engine; no rank writes before all have told rank 0 what they will write.
            unmark(Path(self._create_checkpoint_id(curr_step)))
            shutil.rmtree(self._create_checkpoint_id(curr_step), ignore_errors=True)
        with self._told(curr_step):
            super()._save(curr_step, last_step)
        if self.save_future is None:
            self._complete(curr_step)
        else:
            self._under_way = curr_step
        if self.on_pause:
            self.on_pause(time.perf_counter() - began)
        return True

    def _wait_for_saving(self) -> None:
        assert self.save_future is not None
        future, self.save_future = self.save_future, None
        with self._told(self._under_way):
            future.result()
        self._complete(self._under_way)

    def _complete(self, step: int) -> None:
        if self.on_saved:
            self.on_saved(step)
        self._remove_surplus(step)

    def _purge_stale_checkpoints(self) -> None:
        """Nothing yet: TorchTitan asks as soon as a save has begun, and not after the last one."""

    def _remove_surplus(self, newest: int) -> None:
        if self._saves and self._should_purge():
            for path in surplus_checkpoints(Path(self.folder), self.keep_latest_k, newest):
                unmark(path)
                self.purge_queue.put(str(path))

    def _close(self) -> None:
        """Reached with a save under way only when training has failed: what it had written so far is worth the wait."""
        try:
            self.maybe_wait_for_saving()
        except Exception as error:
            logger.warning("%s", error)
        super()._close()

    @contextmanager
    def _told(self, step: int) -> Iterator[None]:
        """What goes wrong while ``step`` is written, as one sentence that names the rank: torch's own is a traceback of every rank."""
        try:
            yield
        except CheckpointException as error:
            full = full_disk_note(Path(self.folder))
            if torch.distributed.get_rank() == 0:
                # All ranks have stopped writing. On a full disk the error itself finds room only now.
                shutil.rmtree(self._create_checkpoint_id(step), ignore_errors=True)
            causes = [f"rank {rank}: {type(cause).__name__}: {cause}" for rank, (cause, _) in sorted(error.failures.items())]
            raise RuntimeError(f"the checkpoint of step {step} could not be written ({'; '.join(causes[:2])}){full}") from error
