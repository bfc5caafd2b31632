"""The optimizer and its schedule in TorchTitan's own containers."""

import pytest
import torch
from torch import nn

from primus_app.config.schema import OptimizerConfig
from primus_app.plan.learning_rate import learning_rate

STEPS = 12


class Small(nn.Module):
    """A matrix, its bias, a norm, and stacks of matrices and of biases as experts have them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = nn.RMSNorm(3)
        self.experts = nn.Parameter(torch.ones(2, 3, 3))
        self.mlp2_bias_ED = nn.Parameter(torch.ones(2, 3))


@pytest.fixture
def optimizer() -> OptimizerConfig:
    return OptimizerConfig(lr=1e-2, min_lr=1e-3, warmup_steps=3, weight_decay=0.1)


def test_only_tensors_of_two_and_more_dimensions_decay(optimizer: OptimizerConfig) -> None:
    from primus_app.backends.torchtitan.optimizer import optimizer_config

    containers = optimizer_config(optimizer).build(model_parts=[Small()])
    groups = [group for one in containers for group in one.param_groups]
    decay = {name: group["weight_decay"] for group in groups for name in group["param_names"]}
    assert decay == {"linear.weight": 0.1, "experts": 0.1, "linear.bias": 0.0, "norm.weight": 0.0, "mlp2_bias_ED": 0.0}
    assert {(group["lr"], group["betas"], group["eps"]) for group in groups} == {(1e-2, (0.9, 0.95), 1e-8)}


def test_a_part_with_matrices_alone_builds(optimizer: OptimizerConfig) -> None:
    """A pipeline's stage may have no tensor of one kind."""
    from primus_app.backends.torchtitan.optimizer import optimizer_config

    (only,) = optimizer_config(optimizer).build(model_parts=[nn.Linear(2, 2, bias=False)])
    assert [group["weight_decay"] for group in only.param_groups] == [0.1]


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant", "wsd"])
def test_step_k_has_the_rate_of_the_formula(optimizer: OptimizerConfig, schedule: str) -> None:
    from primus_app.backends.torchtitan.optimizer import optimizer_config, schedule_config

    optimizer = optimizer.model_copy(update={"schedule": schedule})
    containers = optimizer_config(optimizer).build(model_parts=[Small()])
    schedules = schedule_config(optimizer, STEPS).build(optimizers=containers, training_steps=99)
    rates = []
    for _ in range(STEPS + 2):
        rates.append(next(iter(containers)).param_groups[0]["lr"])
        containers.step()
        schedules.step()
    assert rates == pytest.approx([learning_rate(optimizer, step, STEPS) for step in range(1, STEPS + 3)])


def test_the_rate_goes_on_after_loading(optimizer: OptimizerConfig) -> None:
    from primus_app.backends.torchtitan.optimizer import optimizer_config, schedule_config

    containers = optimizer_config(optimizer).build(model_parts=[Small()])
    schedules = schedule_config(optimizer, STEPS).build(optimizers=containers, training_steps=99)
    schedules.load_state_dict({"last_epoch": 7})
    assert schedules.get_metrics()["lr/AdamW/0"] == pytest.approx(learning_rate(optimizer, 8, STEPS))
