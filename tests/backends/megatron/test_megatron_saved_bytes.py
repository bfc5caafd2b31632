"""The memory model's activation bytes of a layer, against a count on Megatron's own modules in a real forward pass."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from primus_app.config.schema import ModelConfig
from primus_app.plan.memory.layer_bytes import layer_widths
from primus_app.plan.workload import Layout, Workload

pytestmark = pytest.mark.slow

WORKER = Path(__file__).parent / "saved_worker.py"
ROOT = Path(__file__).parents[3]
BATCH, LENGTH = 3, 64


@dataclass(frozen=True)
class Case:
    name: str
    compute: str = "fp32"
    recompute: str = "none"
    changes: tuple[tuple[str, Any], ...] = ()


MODELS = ("llama_tiny", "qwen3_tiny", "qwen3_moe_tiny", "deepseek_v3_tiny", "gpt_oss_tiny")
CASES = [
    *(Case(name, compute) for name in MODELS for compute in ("fp32", "bf16")),
    Case("llama_tiny", changes=(("family", "qwen2"), ("attention_qkv_bias", True))),
    *(Case(name, recompute="selective") for name in ("llama_tiny", "deepseek_v3_tiny")),
]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, model_of: Callable[..., ModelConfig]) -> list[list[int]]:
    folder = tmp_path_factory.mktemp("kept")
    asked = [
        {
            "model": model_of(case.name, **dict(case.changes)).model_dump(),
            "compute": case.compute,
            "recompute": case.recompute,
            "batch": BATCH,
            "seq_len": LENGTH,
        }
        for case in CASES
    ]
    (folder / "cases.json").write_text(json.dumps(asked))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(WORKER), str(folder / "cases.json"), str(folder / "found.json")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: list[list[int]] = json.loads((folder / "found.json").read_text())
    return found


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{case.name}-{case.compute}-{case.recompute}" for case in CASES])
def test_bytes_are_exact(index: int, counted: list[list[int]], model_of: Callable[..., ModelConfig]) -> None:
    case = CASES[index]
    model = model_of(case.name, **dict(case.changes))
    workload = Workload(model, LENGTH, BATCH, "megatron", case.compute, "1f1b", model.vocab_size, fused=False)  # type: ignore[arg-type]
    layout = Layout(*(1,) * 8, BATCH, 1, False, True, 0)
    widths = layer_widths(workload, selective=case.recompute == "selective")
    leading = model.num_hidden_layers if model.moe is None else model.moe.first_k_dense_replace
    kinds = [widths.dense] * leading + [widths.experts] * (model.num_hidden_layers - leading)
    # torch.utils.checkpoint keeps a number of its own for each thing it does again.
    own = 4 if case.recompute == "selective" else 0
    # The sink's row of keys and values, one a sequence, is not in the model.
    tolerance = 0.005 if model.attention_sinks else 0
    assert counted[index] == pytest.approx([kind.bytes(workload, layout) + own for kind in kinds if kind is not None], rel=tolerance)
