"""Which layers of a stage TorchTitan computes again."""

import pytest
from torch import nn

from primus_app.config.schema import TrainingConfig


def wrapped(training: TrainingConfig) -> list[bool]:
    """Of each of four layers, after the run's policy has been applied."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

    from primus_app.backends.torchtitan.recompute import recompute_config

    model = nn.ModuleDict({"layers": nn.ModuleDict({str(index): nn.Linear(2, 2) for index in range(4, 8)})})
    policy = recompute_config(training)
    if policy is not None:
        policy.build(dump_folder="").apply(model)
    return [isinstance(layer, CheckpointWrapper) for layer in model.get_submodule("layers").children()]


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        (TrainingConfig(), [False] * 4),
        (TrainingConfig(recompute="full"), [True] * 4),
        (TrainingConfig(recompute="full", recompute_layers=3), [True, True, True, False]),
    ],
)
def test_the_first_layers_or_all(training: TrainingConfig, expected: list[bool]) -> None:
    assert wrapped(training) == expected
