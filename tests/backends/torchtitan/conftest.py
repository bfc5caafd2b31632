"""TorchTitan on this machine's device, and the seeded models that its tests share."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch

from primus_app.backends.torchtitan.device import prepare_device
from primus_app.config.schema import ModelConfig


@pytest.fixture(scope="session", autouse=True)
def _torchtitan_on_the_cpu() -> None:
    """Before anything imports torchtitan; eager, since compiling a mask takes a C++ compiler longer than these tests."""
    prepare_device()
    torch.compiler.set_stance("force_eager")


@pytest.fixture(scope="session")
def seeded_model() -> Callable[..., Any]:
    """``seeded_model(model, seed, seq_len=…, compute=…)``: TorchTitan's module of it on the CPU with seeded weights."""
    return build_seeded


def build_seeded(model: ModelConfig, seed: int, *, seq_len: int = 64, compute: Literal["fp32", "bf16"] = "fp32") -> torch.nn.Module:
    from primus_app.backends.torchtitan.model import build_model_spec
    from primus_app.backends.torchtitan.weights import init_seeded

    spec = build_model_spec(model, seq_len=seq_len, cpu=True, compute=compute)
    module = spec.model.build()
    module.init_states()
    assert spec.state_dict_adapter is not None
    init_seeded([module], model, seed, spec.state_dict_adapter(spec.model, None))
    return module
