"""When the validation loss is taken: every so many steps, and after the last."""

from dataclasses import dataclass

from torchtitan.components.validate import Validator


class Evaluator(Validator):
    """TorchTitan's validator, which reads the same first batches of the split each time."""

    @dataclass(kw_only=True, slots=True)
    class Config(Validator.Config):
        last_step: int

    config: Config

    def should_validate(self, step: int) -> bool:
        return step % self.config.freq == 0 or step == self.config.last_step
