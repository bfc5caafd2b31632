"""What one engine refuses is offered on the other, where that one trains it as it stands."""

import pytest

from primus_app.backends.elsewhere import refusals
from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.plan.plan import make_plan


def told(*overrides: str) -> list[str]:
    config = load_config(Request(overrides), hardware="cpu")
    return [fix for problem in refusals(config, make_plan(config, local_devices=1).mesh) for fix in problem.fix]


@pytest.mark.parametrize(
    ("overrides", "other"),
    [
        (("model=mixtral_8x7b",), "backend=megatron trains it"),
        (("model=qwen2_5_7b",), "backend=megatron trains it"),
        (("backend=megatron", "parallel=pp2", "parallel.schedule=gpipe", "cluster.devices_per_node=2"), "backend=torchtitan trains it"),
    ],
)
def test_the_other_engine_is_named(overrides: tuple[str, ...], other: str) -> None:
    assert told(*overrides)[-1] == other


def test_an_engine_that_cannot_either_is_not_named() -> None:
    """One has not the model, the other not the schedule."""
    fixes = told("model=mixtral_8x7b", "parallel=pp2", "parallel.schedule=gpipe", "cluster.devices_per_node=2")
    assert fixes != []
    assert not any(fix.startswith("backend=") for fix in fixes)


def test_nothing_is_said_of_what_is_trained() -> None:
    assert told() == []
