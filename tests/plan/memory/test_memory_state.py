"""Weights, gradients and optimizer states of a rank: against the plan's own count of weights, and the published bytes a parameter."""

from collections.abc import Callable
from typing import Any

import pytest

from primus_app.plan.memory.layers import stage_layers
from primus_app.plan.memory.state import RankParameters, State, rank_parameters, state
from primus_app.plan.mesh import Mesh
from primus_app.plan.parameters import count_parameters
from primus_app.plan.stages import make_stages, pipeline_ranks

Of = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("llama3_8b", {}),
        ("llama3_70b", {"tp": 8, "pp": 4}),
        ("llama3_70b", {"tp": 4, "pp": 4, "vpp": 5}),
        ("llama3_1_405b", {"tp": 8, "pp": 16}),
        ("qwen2_5_0_5b", {"tp": 2, "pp": 2}),
        ("qwen3_235b_a22b", {"tp": 4, "pp": 2, "ep": 8, "etp": 4}),
        ("deepseek_v3", {"pp": 7, "vpp": 3, "ep": 64}),
        ("deepseek_v3", {"pp": 21, "tp": 2, "ep": 8}),
        ("deepseek_v2_lite", {"ep": 8}),
        ("gpt_oss_20b", {"tp": 8, "pp": 2, "etp": 8, "ep": 2}),
    ],
)
def test_weights_are_those_the_plan_counts(name: str, degrees: dict[str, int], workload_of: Of, layout_of: Of) -> None:
    workload, layout = workload_of(name), layout_of(dp_shard=degrees.get("ep", 1), **degrees)
    d = {"tp": 1, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "etp": 1, **degrees}
    mesh = Mesh(world=layout.world, nodes=1, devices_per_node=8, dp_replicate=1, dp_shard=d["ep"], dp=d["ep"], **d)
    model = workload.model
    counted = pipeline_ranks(make_stages(model, count_parameters(model), mesh), layout.pp)
    found = [rank_parameters(workload, layout, stage_layers(model, layout, stage)) for stage in range(layout.pp)]
    assert [(rank.dense, rank.experts) for rank in found] == counted


@pytest.mark.parametrize(
    ("changes", "shards", "expected"),
    [
        # Megatron-LM, distributed optimizer: 18 bytes a parameter without it, 6 + 12/d with it; in float32 16, and 8 + 8/d.
        ({}, {"sharded_optimizer": False}, State(2000, 4000, 12000)),
        ({}, {}, State(2000, 4000, 3000)),
        ({"compute": "fp32"}, {"sharded_optimizer": False}, State(4000, 4000, 8000)),
        ({"compute": "fp32"}, {}, State(4000, 4000, 2000)),
        # Transformer Engine's fp8 copies, one for each direction.
        ({"compute": "fp8"}, {}, State(4000, 4000, 3000)),
        # FSDP2 divides all that it keeps in float32.
        ({"engine": "torchtitan"}, {}, State(1000, 1000, 2000)),
    ],
)
def test_bytes_a_parameter(changes: dict[str, Any], shards: dict[str, Any], expected: State, workload_of: Of, layout_of: Of) -> None:
    layout = layout_of(**{"dp_shard": 2, "cp": 2, **shards})
    assert state(workload_of(**changes), layout, RankParameters(1000, 0)) == expected


def test_experts_are_divided_among_the_ranks_that_share_them(workload_of: Of, layout_of: Of) -> None:
    # 8 ranks, 4 kinds of experts: two ranks share each, so 6 + 12/2 bytes.
    found = state(workload_of("deepseek_v3"), layout_of(dp_shard=8, ep=4), RankParameters(0, 1000))
    assert found == State(2000, 4000, 6000)
