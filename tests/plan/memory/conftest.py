"""Workloads and layouts in one line each."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from primus_app.config.location import conf_dir
from primus_app.config.schema import ModelConfig
from primus_app.plan.workload import Layout, Workload


def make_workload(name: str = "llama3_70b", **changes: Any) -> Workload:
    values = yaml.safe_load((conf_dir() / "model" / f"{name}.yaml").read_text())
    model = ModelConfig(**{**values, **changes.pop("model", {})})
    fields: dict[str, Any] = {
        "model": model,
        "seq_len": 4096,
        "global_batch_size": 64,
        "engine": "megatron",
        "compute": "bf16",
        "schedule": "1f1b",
        "padded_vocab": model.vocab_size,
        "fused": True,
    }
    return Workload(**{**fields, **changes})


def make_layout(**changes: Any) -> Layout:
    degrees = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch_size", "num_microbatches")
    fields: dict[str, Any] = dict.fromkeys(degrees, 1)
    return Layout(**{**fields, "sequence_parallel": changes.get("tp", 1) > 1, "sharded_optimizer": True, "recompute": 0, **changes})


@pytest.fixture
def workload_of() -> Callable[..., Workload]:
    """``workload_of(model, **changes)``: bf16 on Megatron with fused kernels, 4096 tokens, unless said otherwise."""
    return make_workload


@pytest.fixture
def layout_of() -> Callable[..., Layout]:
    """``layout_of(**changes)``: one device, unless said otherwise."""
    return make_layout
