"""The memory model against what real ranks allocate on this machine's CPU: tensors counted one by one, and the process's peak."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.plan.estimate.memory import MemoryEstimate, estimate_memory
from primus_app.plan.estimate.subject import layout_of, workload_of
from primus_app.plan.memory.logits import logits_bytes
from primus_app.plan.plan import make_plan
from tests.system.program import Start, environment, rows

pytestmark = pytest.mark.slow

PROBE = Path(__file__).with_name("rank_probe.py")
COMMON = ("training.steps=2", "training.eval_every=0", "checkpoint.every=0", "logging.tensorboard=false")
ENGINES = ("torchtitan", "megatron")
WIDE = (
    "model=llama_tiny",
    "model.hidden_size=256",
    "model.intermediate_size=704",
    "model.head_dim=64",
    "training.seq_len=512",
    "training.micro_batch_size=4",
    "training.global_batch_size=8",
    "precision=fp32",
)
"""One rank with two micro batches of 2,048 tokens, so that all gradients are there while the second one's activations are."""
EXPERTS = (
    "model=qwen3_moe_tiny",
    "precision=bf16",
    "parallel.tp=2",
    "parallel.dp_shard=2",
    "parallel.ep=2",
    "cluster.devices_per_node=4",
    "training.seq_len=32",
    "training.global_batch_size=4",
)
Found = dict[str, int]
CASES = [(engine, overrides) for overrides in (WIDE, EXPERTS) for engine in ENGINES]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[Found]]:
    folder = tmp_path_factory.mktemp("ranks")
    asked = [{"engine": engine, "overrides": [*COMMON, *overrides]} for engine, overrides in CASES]
    (folder / "cases.json").write_text(json.dumps(asked))
    command = [sys.executable, str(PROBE), str(folder / "cases.json"), str(folder)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    files = [sorted(folder.glob(f"{case}-*.json")) for case in range(len(CASES))]
    return [[json.loads(file.read_text()) for file in each] for each in files]


def plan_of(engine: str, overrides: tuple[str, ...]) -> tuple[Any, Any, MemoryEstimate]:
    config = load_config(Request((*COMMON, *overrides, f"backend={engine}")), hardware="cpu")
    plan = make_plan(config, local_devices=1)
    assert plan.problems == ()
    assert plan.mesh is not None
    assert plan.batch is not None
    return workload_of(config), layout_of(config, plan.mesh, plan.batch), estimate_memory(config, plan.mesh, plan.batch)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{engine}-{overrides[0]}" for engine, overrides in CASES])
def test_weights_gradients_and_optimizer_states_are_exact(case: int, ranks: list[list[Found]]) -> None:
    _, layout, memory = plan_of(*CASES[case])
    assert len(ranks[case]) == layout.world
    for number, rank in enumerate(ranks[case]):
        stage = memory.stages[number // (layout.world // layout.pp)]
        predicted = {"weights": stage.weights, "gradients": stage.gradients, "optimizer": stage.optimizer}
        assert {name: rank[name] for name in predicted} == predicted


@pytest.mark.parametrize("case", range(2), ids=ENGINES)
def test_activations_of_the_whole_model(case: int, ranks: list[list[Found]]) -> None:
    # Megatron's forward pass ends with the loss, which keeps the softmax; TorchTitan's ends before the output layer.
    workload, layout, memory = plan_of(*CASES[case])
    loss = logits_bytes(workload, layout) if workload.engine == "megatron" else 0
    assert ranks[case][0]["kept"] == pytest.approx(memory.stages[0].activations + loss, rel=0.10)


@pytest.mark.parametrize("case", range(2), ids=ENGINES)
def test_peak_of_all_tensors(case: int, ranks: list[list[Found]]) -> None:
    _, _, memory = plan_of(*CASES[case])
    assert ranks[case][0]["peak"] == pytest.approx(memory.stages[0].allocated, rel=0.10)


@pytest.mark.parametrize("engine", ENGINES)
def test_peak_of_the_process(engine: str, start: Start) -> None:
    # What malloc holds in vain depends on the order of all sizes, hence no less.
    _, _, memory = plan_of(engine, WIDE)
    program = start(*COMMON, *WIDE, f"backend={engine}")
    assert program.end()[0] == 0
    assert max(row["memory_gib"] for row in rows(program.run)) * 2**30 == pytest.approx(memory.needed, rel=0.15)
