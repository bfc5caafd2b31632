"""When the validation loss is taken: every so many steps, and after the last."""

import time
from dataclasses import dataclass

from torch import nn
from torchtitan.components.validate import Validator

from primus_app.backends.torchtitan.metrics import StepMetrics


class Evaluator(Validator):
    """TorchTitan's validator, which reads the same first batches of the split each time; its time is no training step's."""

    @dataclass(kw_only=True, slots=True)
    class Config(Validator.Config):
        last_step: int

    config: Config

    def should_validate(self, step: int) -> bool:
        return step % self.config.freq == 0 or step == self.config.last_step

    def validate(self, model_parts: list[nn.Module], step: int) -> None:
        metrics = self.metrics_processor
        assert isinstance(metrics, StepMetrics)
        began, tokens = time.perf_counter(), metrics.ntokens_since_last_log
        super().validate(model_parts, step)
        elapsed = time.perf_counter() - began
        metrics.ntokens_since_last_log = tokens  # TorchTitan adds the validation's own.
        metrics.leave_out(elapsed)
        if metrics.recorder:
            metrics.recorder.record(step, {"eval_loss": metrics.eval_loss, "eval_time_s": elapsed})
