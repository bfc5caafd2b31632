"""The verb tune at the door."""

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

Door = Callable[..., Any]

JOB = (
    "model=llama3_70b",
    "hardware=mi300x",
    "precision=bf16",
    "backend=megatron",
    "training.seq_len=8192",
    "training.global_batch_size=128",
)


def test_ten_layouts_with_their_commands(door: Door) -> None:
    answer = door("tune", *JOB, "cluster.nodes=8")
    assert answer.code == 0
    assert "llama3_70b on 64 x mi300x" in answer.out
    assert "Memory against time" in answer.out
    assert "10. " in answer.out


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["megatron", "torchtitan"])
def test_every_command_is_planned_as_it_was_predicted(door: Door, backend: str) -> None:
    job = [typed.replace("megatron", backend) for typed in JOB]
    found = json.loads(door("tune", *job, "cluster.nodes=8", "--json").out)
    assert len(found["best"]) == 10
    for row in found["best"][:4]:
        words = shlex.split(row["command"])
        planned = door("plan", *words[next(number for number, word in enumerate(words) if "=" in word) :], "--json")
        assert planned.code == 0, planned.out
        plan = json.loads(planned.out)
        assert plan["refused_by_backend"] == []
        assert plan["time"]["step_s"]["total"] == pytest.approx(row["step_s"], rel=1e-6)
        assert plan["memory"]["needed"] / 2**30 == pytest.approx(row["memory_gib"], rel=1e-6)


def test_what_is_typed_of_the_layout_is_kept(door: Door) -> None:
    found = json.loads(door("tune", *JOB, "cluster.nodes=8", "parallel.tp=2", "training.micro_batch_size=1", "--json").out)
    assert {(row["tp"], row["micro_batch_size"]) for row in found["best"]} == {(2, 1)}
    assert "parallel.tp=2 " in found["best"][0]["command"]


@pytest.mark.parametrize(("typed", "where"), [(("parallel=tp8",), "parallel"), (("parallel.schedule=gpipe",), "parallel.schedule")])
def test_what_the_search_cannot_heed_is_refused(door: Door, typed: tuple[str, ...], where: str) -> None:
    job = [text for text in JOB if text.partition("=")[0] != typed[0].partition("=")[0]]
    answer = door("tune", *job, *typed)
    assert answer.code == 2
    assert [problem[0].partition(":")[0] for problem in answer.problems()] == [where]


def test_nothing_that_fits_is_told_with_the_least_it_takes(door: Door) -> None:
    answer = door("tune", *JOB, "cluster.nodes=1", "model.num_hidden_layers=480")
    assert answer.code == 2
    assert "the leanest needs" in answer.err


def test_nothing_that_is_legal_is_told(door: Door) -> None:
    answer = door("tune", *JOB, "cluster.nodes=8", "parallel.tp=3")
    assert answer.code == 2
    assert "no layout of llama3_70b on 64 devices is legal" in answer.err


def test_without_figures_for_a_time_the_plainest_that_fit_are_told_with_their_memory(door: Door) -> None:
    """Of a CPU: data parallel alone first; each command's plan needs what the row says."""
    asked = ("tune", "hardware=cpu", "cluster.devices_per_node=4")
    found = json.loads(door(*asked, "--json").out)
    layouts = [(row["tp"], row["pp"], row["vpp"], row["cp"], row["dp_replicate"], row["dp_shard"]) for row in found["best"]]
    assert layouts[:3] == [(1, 1, 1, 1, 1, 4), (1, 1, 1, 1, 2, 2), (1, 1, 1, 1, 4, 1)]
    assert (2, 1, 1, 1, 1, 2) in layouts
    assert len(set(layouts)) == len(layouts)
    assert "hardware.hbm_tb_s" in found["time_needs"]
    plan = json.loads(door("plan", *[word for word in shlex.split(found["best"][0]["command"]) if "=" in word], "--json").out)
    assert plan["memory"]["needed"] / 2**30 == pytest.approx(found["best"][0]["memory_gib"])
    told = door(*asked)
    assert told.code == 0
    assert "1  shard4 micro4" in told.out
    assert door("tune", "model=llama3_1_405b", "hardware=cpu").code == 2
