"""Where the numbers of a step go: metrics.jsonl, TensorBoard and the log, the same numbers in each."""

import logging
from typing import Any

from primus_app.config.schema import Config
from primus_app.run.directory import RunDirectory
from primus_app.run.metrics import MetricsWriter

logger = logging.getLogger(__name__)

TEXT = {
    "loss": "loss {:.4f}",
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
        self._metrics = MetricsWriter(run)
        self._board = None
        if config.logging.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run.tensorboard_dir), max_queue=1000)

    def record(self, step: int, values: dict[str, Any]) -> None:
        """One line for ``step``; None means unknown and is left out of TensorBoard and the log."""
        self._metrics.write({"step": step, **values})
        known = {name: value for name, value in values.items() if value is not None}
        if self._board:
            for name, value in known.items():
                self._board.add_scalar(name, value, step)
        logger.info("step %d: %s", step, ", ".join(text.format(known[name]) for name, text in TEXT.items() if name in known))

    def close(self) -> None:
        self._metrics.close()
        if self._board:
            self._board.close()
