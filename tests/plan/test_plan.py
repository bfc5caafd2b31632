"""The plan of whole configurations: what is worked out, what is refused, and that it survives JSON."""

import json
from collections.abc import Sequence

import pytest

from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.config.schema import Config
from primus_app.plan.plan import Plan, make_plan

GIB = 2**30
LLAMA3_405B = (
    "model=llama3_1_405b",
    "parallel=tp8_pp16",
    "hardware=mi300x",
    "training.seq_len=8192",
    "training.global_batch_size=128",
    "training.micro_batch_size=1",
)


def compose(*overrides: str) -> Config:
    return load_config(Request(overrides), hardware="cpu")


def plan_of(*overrides: str, local_devices: int = 1) -> Plan:
    return make_plan(compose(*overrides), local_devices=local_devices)


def wheres(plan: Plan) -> Sequence[str]:
    return [problem.where for problem in plan.problems]


def test_the_default_run() -> None:
    plan = plan_of()
    assert plan.problems == ()
    assert plan.mesh is not None
    assert plan.batch is not None
    assert plan.parameters is not None
    assert (plan.mesh.world, plan.batch.accumulation, plan.batch.tokens_per_step, plan.batch.steps) == (1, 2, 2048, 200)
    # Two tables of 320 x 128, four layers of attention (3 x 128 x 128), MLP (3 x 128 x 352) and two norms, and the last norm.
    total = 2 * 320 * 128 + 4 * (3 * 128 * 128 + 3 * 128 * 352 + 256) + 128
    assert plan.parameters.total == total
    assert plan.model_state_gib == pytest.approx(16 * total / GIB)


def test_llama3_405b_on_128_devices() -> None:
    plan = plan_of(*LLAMA3_405B)
    assert plan.problems == ()
    assert plan.mesh is not None
    assert (plan.mesh.world, plan.mesh.nodes, plan.mesh.dp) == (128, 16, 1)
    assert [stage.num_layers for stage in plan.stages] == [7, *[8] * 14, 7]
    # 8 layers of 3,187,703,808 weights without norms on tp 8, and 2 norms of 16384 whole on each rank, at 16 bytes.
    layer = 2 * 16384 * (16384 + 1024) + 3 * 16384 * 53248
    assert plan.model_state_gib == pytest.approx(16 * (layer + 8 * 2 * 16384) / GIB)


def test_flops_follow_the_convention() -> None:
    plan = plan_of(*LLAMA3_405B)
    # 6 N + 12 L h s with N without the embedding table of 128256 x 16384.
    per_token = 6 * (405853388800 - 128256 * 16384) + 12 * 126 * 16384 * 8192
    assert plan.flops_per_token == per_token
    assert plan.flops_per_step == per_token * 128 * 8192


def test_fsdp_shards_the_model_state() -> None:
    overrides = ("parallel=fsdp", "training.micro_batch_size=1", "training.global_batch_size=16")
    whole, shared = plan_of(*overrides).model_state_gib, plan_of(*overrides, local_devices=8).model_state_gib
    assert whole is not None
    assert shared is not None
    assert shared == pytest.approx(whole / 8)


def test_cp_shards_the_model_state_too_and_replicas_do_not() -> None:
    overrides = ("parallel.dp_replicate=auto", "parallel.dp_shard=1", "training.micro_batch_size=1")
    alone = plan_of(*overrides).model_state_gib
    assert plan_of(*overrides, local_devices=4).model_state_gib == alone
    assert alone is not None
    assert plan_of("parallel=cp2", local_devices=2).model_state_gib == pytest.approx(alone / 2)


def test_experts_are_shared_by_ep_and_what_is_left_of_the_shards() -> None:
    plan = plan_of("model=deepseek_v3_tiny", "parallel=fsdp", "parallel.ep=2", "training.micro_batch_size=1", local_devices=4)
    whole = plan_of("model=deepseek_v3_tiny")
    assert plan.problems == whole.problems == ()
    (stage,) = whole.stages
    dense = stage.parameters_per_rank - stage.experts_per_rank
    assert plan.stages[0].experts_per_rank == stage.experts_per_rank // 2
    assert plan.model_state_gib == pytest.approx(16 * (dense / 4 + stage.experts_per_rank / 4) / GIB)


def test_all_problems_come_at_once() -> None:
    plan = plan_of(
        "parallel.tp=3",
        "cluster.devices_per_node=8",
        "parallel.schedule=gpipe",
        "training.tokens=1000",
        "training.steps=5",
        "training.seq_len=4096",
        "training.load_balancing=aux_loss",
        "optimizer.warmup_steps=500",
        "optimizer.schedule_steps=100",
        "optimizer.min_lr=1",
        "data.path=/tmp/x",
        "model.num_key_value_heads=3",
    )
    assert plan.mesh is None
    assert wheres(plan) == [
        "model.num_key_value_heads",
        "parallel.schedule",
        "parallel",
        "parallel.tp",
        "training.seq_len",
        "training.seq_len",
        "training.steps",
        "optimizer.warmup_steps",
        "optimizer.min_lr",
        "training.load_balancing",
        "data.path",
    ]


def test_what_can_be_known_is_known_beside_problems() -> None:
    plan = plan_of("parallel.tp=3", "cluster.devices_per_node=8")
    assert plan.mesh is None
    assert plan.stages == ()
    assert plan.parameters is not None
    assert plan.flops_per_token is not None
    assert plan.flops_per_step is None


def test_the_tp_offered_by_the_mesh_is_one_that_the_model_allows() -> None:
    # 8 devices hold tp 2, 4 and 8, but llama_tiny has 2 key and value heads.
    plan = plan_of("parallel=fsdp", "parallel.tp=3", "cluster.devices_per_node=8")
    problem = next(problem for problem in plan.problems if problem.where == "parallel")
    assert problem.fix[0] == "parallel.tp=2"


def test_a_pipeline_needs_a_micro_batch_for_each_stage_under_torch_1f1b() -> None:
    whole = ("parallel=pp2", "training.global_batch_size=8", "training.micro_batch_size=8")
    assert wheres(plan_of(*whole)) == ["training.micro_batch_size"]
    assert plan_of(*whole, "parallel.schedule=gpipe").problems == ()
    assert plan_of("parallel=pp2", "training.global_batch_size=8", "training.micro_batch_size=4").problems == ()


@pytest.mark.parametrize(
    ("overrides", "micro"),
    [
        ((), 8),  # 16 samples on one rank: the largest that auto takes.
        (("parallel=fsdp", "cluster.devices_per_node=4"), 4),  # A quarter of 16 samples.
        (("parallel=pp2", "training.global_batch_size=8"), 4),  # torch's 1F1B needs two.
        (("training.global_batch_size=7",), 7),
    ],
)
def test_auto_takes_the_largest_legal_micro_batch(overrides: tuple[str, ...], micro: int) -> None:
    batch = plan_of(*overrides).batch
    assert batch is not None
    assert batch.micro_batch_size == micro


@pytest.mark.parametrize(
    "overrides", [(), LLAMA3_405B, ("parallel.tp=3", "cluster.devices_per_node=8"), ("model=deepseek_v3_tiny", "parallel=ep2")]
)
def test_to_dict_survives_json(overrides: tuple[str, ...]) -> None:
    data = plan_of(*overrides).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert list(data) == [
        "model",
        "mesh",
        "batch",
        "parameters",
        "stages",
        "flops_per_token",
        "flops_per_step",
        "flops_convention",
        "model_state_gib",
        "model_state_bytes_per_parameter",
        "problems",
    ]


def test_problems_in_the_dict_keep_their_fix() -> None:
    data = plan_of("optimizer.min_lr=1").to_dict()
    assert data["problems"] == [
        {
            "where": "optimizer.min_lr",
            "what": "min_lr 1 is above lr 0.003, the peak it falls from",
            "fix": ["optimizer.min_lr=0.0003 or optimizer.min_lr=0.003"],
        }
    ]
