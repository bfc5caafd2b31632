"""What TorchTitan computes again in the backward pass; its own policies know all layers of a stage or none."""

from dataclasses import dataclass

from torch import nn
from torchtitan.distributed.activation_checkpoint import ActivationCheckpointing, FullAC, SelectiveAC

from primus_app.config.schema import TrainingConfig


class FirstLayers(FullAC):
    """FullAC for the first layers of each stage, as Megatron's block method."""

    @dataclass(kw_only=True, slots=True)
    class Config(FullAC.Config):
        layers: int

    config: Config

    def apply(self, model: nn.Module) -> None:
        """Blocks come to ``_wrap_block`` in their order."""
        self._left = self.config.layers
        super().apply(model)

    def _wrap_block(self, module: nn.Module, *, base_fqn: str | None = None) -> nn.Module:
        self._left -= 1
        return super()._wrap_block(module, base_fqn=base_fqn) if self._left >= 0 else module


def recompute_config(training: TrainingConfig) -> ActivationCheckpointing.Config | None:
    """The policy of a run; None computes nothing again."""
    if training.recompute == "none":
        return None
    if training.recompute == "selective":
        return SelectiveAC.Config()
    return FullAC.Config() if training.recompute_layers is None else FirstLayers.Config(layers=training.recompute_layers)
