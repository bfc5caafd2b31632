"""The hooks into Megatron-LM's trainer hand over once, and fail loudly where what they change is gone."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from primus_app.backends.megatron.pretrain import hooks
from primus_app.backends.megatron.pretrain.hooks import TRAINING, Hosting

APPLIED = {hooks.START_ID: hooks.apply_start, hooks.STEP_ID: hooks.apply_step, hooks.EVALUATION_ID: hooks.apply_evaluation}


class Heard:
    """A host that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, model: list[Any], optimizer: Any, scheduler: Any) -> None:
        self.told.append(("begin", model, optimizer, scheduler))

    def stepped(self, step: int, losses: dict[str, Any], norm: Any) -> None:
        self.told.append(("stepped", step, losses, norm))

    def evaluate(self, step: int) -> None:
        self.told.append(("evaluate", step))


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module in the place of the trainer's, with its functions as 0.17 calls them."""
    module: Any = ModuleType(TRAINING)
    module.setup_model_and_optimizer = lambda provider, kind, checkpointing_context=None: (["model"], "optimizer", "scheduler")
    module.training_log = lambda *args, **named: pytest.fail("Megatron-LM's own log was written")
    module.evaluate_and_print_results = lambda *args, **named: pytest.fail("Megatron-LM's own evaluation was run")
    for name in ("megatron", "megatron.training"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name) or ModuleType(name))
    monkeypatch.setitem(sys.modules, TRAINING, module)
    found: ModuleType = module
    return found


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard = Heard()
    monkeypatch.setattr(Hosting, "host", heard)
    return heard


def test_the_trainer_hands_over(trainer: Any, host: Heard) -> None:
    for apply in (*APPLIED.values(), *APPLIED.values()):  # Twice, as a correction may be.
        apply()
    assert trainer.setup_model_and_optimizer("provider", "kind", checkpointing_context={}) == (["model"], "optimizer", "scheduler")
    report = trainer.training_log({"loss": 2.0}, {}, 1e-3, 7, 1.0, True, 0, 0.5, None, 0, None, pg_collection=None, is_first_iteration=True)
    trainer.evaluate_and_print_results("iteration 7", None, None, [], 7, None, None, verbose=False)
    assert report is True
    assert host.told == [("begin", ["model"], "optimizer", "scheduler"), ("stepped", 7, {"loss": 2.0}, 0.5), ("evaluate", 7)]


@pytest.mark.parametrize(("name", "apply"), APPLIED.items())
def test_what_is_gone_is_named(trainer: ModuleType, name: str, apply: Callable[[], None]) -> None:
    trainer.__dict__.clear()
    with pytest.raises(RuntimeError, match=name):
        apply()


def test_nothing_is_needed_by_the_other_runner() -> None:
    assert not Hosting.wanted
    assert not any(patch.is_needed() for patch in hooks.PRETRAIN_PATCHES)
