"""The layout's own rules: what auto becomes, and what is said when the degrees do not come out."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_app.config.errors import Problem
from primus_app.config.schema import ClusterConfig, HardwareConfig, ParallelConfig
from primus_app.plan.mesh import Mesh, resolve_mesh, usual_devices

MI300X = HardwareConfig(name="mi300x", vendor="amd", devices_per_node=8)
HERE = HardwareConfig()
CHOICE = re.compile(r"(parallel|cluster)\.(\w+)=(\d+)")


def resolve(local: int = 8, hardware: HardwareConfig = HERE, nodes: Any = "auto", devices: Any = "auto", **degrees: Any) -> Any:
    cluster = ClusterConfig(nodes=nodes, devices_per_node=devices)
    return resolve_mesh(ParallelConfig(**degrees), cluster, hardware, local)


def mesh_of(*args: Any, **kwargs: Any) -> Mesh:
    mesh, problems = resolve(*args, **kwargs)
    assert problems == []
    return mesh


def only_problem(*args: Any, **kwargs: Any) -> Problem:
    _, problems = resolve(*args, **kwargs)
    assert len(problems) == 1
    return problems[0]


def test_llama3_405b_layout_takes_16_nodes_of_8() -> None:
    # tp 8 and pp 16 are the layout of Llama 3 405B (arXiv 2407.21783, table 4); one replica is 128 devices.
    mesh = mesh_of(1, MI300X, tp=8, pp=16)
    assert (mesh.world, mesh.nodes, mesh.devices_per_node, mesh.dp) == (128, 16, 8, 1)


def test_llama3_405b_published_run_has_128_replicas_on_16384_devices() -> None:
    assert mesh_of(1, MI300X, nodes=2048, tp=8, pp=16).dp == 128


def test_auto_uses_every_local_device() -> None:
    assert mesh_of(8).dp_shard == 8
    assert mesh_of(8, tp=2).dp_shard == 4
    assert mesh_of(8, dp_replicate="auto", dp_shard=2).dp_replicate == 4


def test_a_layout_without_auto_takes_only_the_devices_it_names() -> None:
    mesh = mesh_of(8, dp_shard=1)
    assert (mesh.world, mesh.nodes, mesh.devices_per_node) == (1, 1, 1)
    mesh = mesh_of(8, tp=4, pp=3, dp_shard=1)
    assert (mesh.world, mesh.nodes, mesh.devices_per_node) == (12, 2, 6)


def test_auto_nodes_also_hold_the_experts() -> None:
    mesh = mesh_of(1, ep=2)
    assert (mesh.world, mesh.nodes, mesh.dp) == (2, 2, 2)
    assert mesh_of(1, tp=2, ep=4).world == 4
    assert mesh_of(1, tp=2, etp=2, ep=4).world == 8


@pytest.mark.parametrize(
    ("hardware", "local_hardware", "devices"),
    [(HERE, None, 4), (HardwareConfig(name="cpu", vendor="cpu"), None, 4), (MI300X, None, 8), (MI300X, "mi300x", 4), (MI300X, "h100", 8)],
)
def test_auto_devices_are_those_of_the_hardware_asked_for(hardware: HardwareConfig, local_hardware: str | None, devices: int) -> None:
    assert usual_devices(hardware, 4, local_hardware) == devices


def test_a_world_that_does_not_divide_is_shown_factor_by_factor() -> None:
    problem = only_problem(nodes=2, devices=4, tp=3)
    assert problem.what == "world 8 = 2 nodes x 4 devices is not divisible by tp 3 x pp 1 x cp 1 = 3"
    assert problem.fix == (
        "parallel.tp=2 or parallel.tp=4",
        "cluster.devices_per_node=3 or cluster.devices_per_node=6",
        "cluster.nodes=3",
    )


def test_a_world_that_is_too_large_for_fixed_degrees() -> None:
    problem = only_problem(devices=8, tp=2, dp_shard=1)
    assert problem.what == "world 8 = 1 node x 8 devices is not tp 2 x pp 1 x cp 1 x dp_replicate 1 x dp_shard 1 = 2"
    assert problem.fix == ("parallel.tp=8", "parallel.dp_shard=4 (as auto would)", "cluster.devices_per_node=2")


def test_a_node_of_an_accelerator_is_not_offered_more_devices_than_it_has() -> None:
    assert "cluster.devices_per_node=6" in only_problem(1, MI300X, tp=3).fix
    assert "cluster.devices_per_node=9" in " ".join(only_problem(8, devices=8, tp=3).fix)


def test_only_neighbours_that_the_model_allows_are_offered() -> None:
    _, problems = resolve_mesh(
        ParallelConfig(tp=3), ClusterConfig(devices_per_node=8), HERE, 8, allows=lambda degree, value: (degree, value) != ("tp", 4)
    )
    assert problems[0].fix[0] == "parallel.tp=2 or parallel.tp=8"


def test_two_autos_are_one_too_many() -> None:
    mesh, problems = resolve(dp_replicate="auto")
    assert mesh is None
    assert problems[0].where == "parallel.dp_shard"
    assert "both auto" in problems[0].what


@pytest.mark.parametrize(
    ("degrees", "where", "what", "fix"),
    [
        ({"vpp": 2}, "parallel.vpp", "vpp 2 divides the stages of a pipeline, and pp is 1", "parallel.vpp=1"),
        ({"schedule": "gpipe"}, "parallel.schedule", "gpipe has no effect without a pipeline: pp is 1", "parallel.schedule=1f1b"),
        ({"pp": 2, "vpp": 2}, "parallel.schedule", "vpp 2 needs the interleaved schedule, not 1f1b", "parallel.schedule=interleaved"),
        ({"pp": 2, "schedule": "interleaved"}, "parallel.vpp", "needs vpp of 2 or more, and vpp is 1", "parallel.vpp=2"),
        ({"tp": 4, "etp": 2}, "parallel.etp", "etp 2 is neither 1 nor tp 4", "parallel.etp=1 or parallel.etp=4"),
        ({"etp": 2}, "parallel.etp", "etp 2 is neither 1 nor tp 1", "parallel.etp=1"),
        ({"tp": 2, "etp": 2, "ep": 3}, "parallel.ep", "ep 3 does not divide dp 4 x cp 1 = 4", "parallel.ep=2 or parallel.ep=4"),
        ({"tp": 2, "ep": 3}, "parallel.ep", "ep 3 does not divide dp 4 x cp 1 x tp 2 = 8", "parallel.ep=2 or parallel.ep=4"),
    ],
)
def test_rules_among_the_degrees(degrees: dict[str, Any], where: str, what: str, fix: str) -> None:
    mesh, problems = resolve(8, **degrees)
    assert mesh is not None
    assert [problem.where for problem in problems] == [where]
    assert what in problems[0].what
    assert fix in problems[0].fix[0]


DEGREE = st.sampled_from([1, 2, 3, 4, 6, 8])
LAYOUTS = st.fixed_dictionaries(
    {"tp": DEGREE, "pp": st.sampled_from([1, 2, 3, 4]), "cp": st.sampled_from([1, 2, 3]), "ep": DEGREE},
    optional={"dp_shard": st.sampled_from([1, 2, 3])},
)


@given(LAYOUTS, st.just("auto") | st.integers(1, 8), st.just("auto") | st.integers(1, 9), st.integers(1, 8))
def test_a_mesh_comes_out_exactly_and_every_neighbour_is_legal(degrees: dict[str, int], nodes: Any, devices: Any, local: int) -> None:
    mesh, problems = resolve(local, HERE, nodes, devices, **degrees)
    if mesh is not None:
        assert mesh.world == mesh.nodes * mesh.devices_per_node == mesh.dp * mesh.tp * mesh.pp * mesh.cp
        assert mesh.dp == mesh.dp_replicate * mesh.dp_shard
        assert devices != "auto" or mesh.devices_per_node <= local
    for problem in problems:
        for group, key, value in CHOICE.findall(" ".join(problem.fix)):
            changed = {"nodes": nodes, "devices": devices, **degrees}
            changed["devices" if key == "devices_per_node" else key] = int(value)
            remaining, still = resolve(local, HERE, **changed)
            assert remaining is not None, (group, key, value)
            assert problem.where not in [other.where for other in still]


@given(LAYOUTS, st.integers(1, 8))
def test_auto_nodes_are_the_fewest_that_hold_the_degrees(degrees: dict[str, int], devices: int) -> None:
    mesh, _ = resolve(8, HERE, "auto", devices, **degrees)
    if mesh is None:
        return
    fixed = math.prod(value for name, value in degrees.items() if name != "ep")
    if "dp_shard" in degrees:
        assert mesh.world == fixed
    elif mesh.nodes > 1:
        fewer = (mesh.nodes - 1) * devices
        assert fewer < fixed * mesh.ep // math.gcd(mesh.ep, fixed // mesh.pp)
