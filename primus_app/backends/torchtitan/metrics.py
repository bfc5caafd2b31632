"""The numbers of a step, taken from TorchTitan and given to the recorder under our names and conventions."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.metrics import BaseLogger, MetricsProcessor

from primus_app.backends.divergence import stop_if_diverged
from primus_app.backends.recorder import Recorder
from primus_app.backends.throughput import throughput
from primus_app.backends.torchtitan.device import device_type


class StepMetrics(MetricsProcessor):
    """Keeps TorchTitan's counters; writes nothing itself. The trainer sets ``recorder`` on the rank that knows the loss."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        flops_per_token: float
        """Model FLOPs for one token of training, in the convention of the plan."""
        tokens_per_step: int
        last_step: int
        save_every: int
        """Steps from one checkpoint to the next; 0 where none is saved."""
        peak_tflops: float | None
        """Dense peak of one device in the format that matrices are multiplied in; None shows no MFU."""

    recorder: Recorder | None = None
    last_logged: int = 0
    ntokens_since_last_log: int
    eval_loss: float = math.nan
    balance: Callable[[], float] | None = None
    """What all ranks ask together for the balance loss of this step, where there is one."""

    def _build_metric_logger(self, **unused: Any) -> BaseLogger:
        return BaseLogger()

    def should_log(self, step: int) -> bool:
        """Also before a checkpoint is saved, whose numbers are then looked at alone."""
        return self._is_recorded(step) or bool(self.config.save_every and step % self.config.save_every == 0)

    def _is_recorded(self, step: int) -> bool:
        """Every ``log_freq`` steps, the first and the last."""
        return step in (1, self.config.last_step) or step % self.config.log_freq == 0

    def go_on_after(self, step: int) -> None:
        """Training goes on after ``step``; what loading took is no step's time."""
        self.last_logged = step
        self.time_last_log = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Time that counts towards no training step: an evaluation, the saving of a checkpoint."""
        self.time_last_log += seconds

    def log(
        self,
        step: int,
        global_avg_loss: float,
        global_max_loss: float,
        grad_norm: float,
        extra_metrics: dict[str, Any] | None = None,
    ) -> None:
        """One line of metrics; the times are means over the steps since the last one. TorchTitan has looked at the loss itself."""
        if not math.isfinite(grad_norm):
            # Other ranks than the recorder's may know no loss; the norm is the same on all.
            stop_if_diverged(step, global_avg_loss if self.recorder else None, grad_norm, torch.device(device_type()))
        if not self._is_recorded(step):
            return
        elapsed = time.perf_counter() - self.time_last_log
        num_steps = step - self.last_logged
        tokens = self.ntokens_since_last_log / self.parallel_dims.non_data_parallel_size
        values = {
            "loss": global_avg_loss,
            **({"balance_loss": self.balance()} if self.balance else {}),
            "grad_norm": grad_norm,
            "lr": next((value for name, value in (extra_metrics or {}).items() if name.startswith("lr/")), None),
            "tokens": step * self.config.tokens_per_step,
            "step_time_s": elapsed / num_steps,
            "data_time_s": sum(self.data_loading_times) / num_steps,
            **throughput(tokens, elapsed, self.config.flops_per_token, self.config.peak_tflops),
            "memory_gib": self.device_memory_monitor.get_peak_stats().max_reserved_gib,
        }
        if self.recorder:
            self.recorder.record(step, values)
        self.last_logged = step
        self.ntokens_since_last_log = 0
        self.data_loading_times.clear()
        self.time_last_log = time.perf_counter()
        self.device_memory_monitor.reset_peak_stats()

    def log_validation(self, loss: float, step: int, extra_metrics: dict[str, Any] | None = None) -> None:
        """TorchTitan's validator reports here; the evaluator records, since it knows the time."""
        self.eval_loss = loss
