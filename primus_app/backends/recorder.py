"""Where the numbers of a step go: metrics.jsonl, TensorBoard and the log, the same numbers in each."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_app.config.schema import Config
from primus_app.run.directory import RunDirectory
from primus_app.run.events import Event, append_event
from primus_app.run.metrics import MetricsWriter

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger(__name__)

TEXT = {
    "loss": "loss {:.4f}",
    "balance_loss": "balance loss {:.4f}",
    "eval_loss": "evaluation loss {:.4f}",
    "grad_norm": "gradient norm {:.3f}",
    "lr": "lr {:.3g}",
    "tokens_per_s_per_device": "{:,.0f} tokens/s/device",
    "tflops_per_device": "{:.3g} TFLOP/s/device",
    "mfu": "MFU {:.1%}",
    "memory_gib": "{:.2f} GiB",
}
"""The numbers that the log line shows, and how."""


class Recorder:
    """Writes on the one rank that knows the loss; elsewhere there is none."""

    def __init__(self, run: RunDirectory, config: Config) -> None:
        self._run, self._config = run, config
        self._metrics = MetricsWriter(run)
        self._board: SummaryWriter | None = None

    def go_on_after(self, step: int, attempt_dir: Path) -> None:
        """Training goes on after ``step`` (0 is the beginning): what an earlier attempt wrote of later steps is taken out."""
        dropped = self._metrics.truncate_after(step, attempt_dir)
        if dropped:
            append_event(self._run, Event.METRICS_DROPPED, attempt=int(attempt_dir.name), after_step=step, lines=dropped)
            logger.info("%d lines of metrics after step %d are computed again", dropped, step)
        if self._config.logging.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self._run.tensorboard_dir), max_queue=1000, purge_step=step + 1)

    def has(self, step: int, name: str) -> bool:
        """Whether the last line is of ``step`` and has ``name``."""
        return self._metrics.has(step, name)

    def record(self, step: int, values: dict[str, Any]) -> None:
        """One line for ``step``; None means unknown and is left out of TensorBoard and the log."""
        self._metrics.write({"step": step, **values})
        if "eval_loss" in values:
            append_event(self._run, Event.EVALUATION, step=step, eval_loss=values["eval_loss"])
        known = {name: value for name, value in values.items() if value is not None}
        if self._board:
            for name, value in known.items():
                self._board.add_scalar(name, value, step)
            self._board.flush()  # Half a millisecond; a kill would lose up to two minutes, which no later attempt computes again.
        logger.info("step %d: %s", step, ", ".join(text.format(known[name]) for name, text in TEXT.items() if name in known))

    def close(self) -> None:
        self._metrics.close()
        if self._board:
            self._board.close()
