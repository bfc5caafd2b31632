"""What a machine lacks for a plan, and that every command offered would work on it."""

import shlex
from collections.abc import Sequence
from functools import cache

import pytest
import yaml

from primus_app.config.compose import Request
from primus_app.config.errors import Problem
from primus_app.config.load import load_config
from primus_app.config.location import conf_dir
from primus_app.config.schema import Config, ParallelConfig
from primus_app.plan.devices import TP_LAYOUTS, Machine, check_devices, replace_overrides
from primus_app.plan.plan import make_plan

GIB = 2**30
LAPTOP = Machine(devices=1, is_cpu=True, memory_bytes=16 * GIB, hardware="cpu")
NODE = Machine(devices=8, is_cpu=False, memory_bytes=192 * 10**9, hardware="mi300x")


@cache
def compose_once(overrides: tuple[str, ...], hardware: str) -> Config:
    return load_config(Request(overrides), hardware=hardware)


def compose_on(machine: Machine, overrides: Sequence[str]) -> Config:
    return compose_once(tuple(overrides), machine.hardware or "cpu")


def check(machine: Machine, *overrides: str) -> list[Problem]:
    config = compose_on(machine, overrides)
    plan = make_plan(config, local_devices=machine.devices, local_hardware=machine.hardware)
    problems = check_devices(config, plan, machine, overrides, compose=lambda texts: compose_on(machine, texts))
    for problem in problems:
        for line in problem.fix:
            assert_works(machine, line)
    return problems


def assert_works(machine: Machine, line: str) -> None:
    """A command offered composes, plans without problems and, unless it only plans, lacks nothing here."""
    words = shlex.split(line, comments=True)
    if words[0] != "primus":
        return
    verb, overrides = ("plan", words[2:]) if words[1] == "plan" else ("train", words[1:])
    config = compose_on(machine, overrides)
    plan = make_plan(config, local_devices=machine.devices, local_hardware=machine.hardware)
    assert plan.problems == ()
    if verb == "train":
        assert check_devices(config, plan, machine, overrides, compose=lambda texts: compose_on(machine, texts)) == []


def test_the_default_run_lacks_nothing() -> None:
    assert check(LAPTOP) == []
    assert check(NODE) == []


def test_a_laptop_is_offered_processes_one_process_and_a_plan() -> None:
    (problem,) = check(LAPTOP, "parallel=tp2_pp2", "optimizer.lr=1e-3")
    assert problem.where == "parallel"
    assert problem.what == (
        "tp 2 x pp 2 x cp 1 x dp 1 needs 4 devices; this machine has no accelerator, so it is 1 device (one process on its CPU): 3 missing"
    )
    assert problem.fix == (
        "primus parallel=tp2_pp2 optimizer.lr=1e-3 cluster.devices_per_node=4  # 4 processes on the CPU",
        "primus optimizer.lr=1e-3 parallel=single  # one process on the CPU",
        "primus plan parallel=tp2_pp2 optimizer.lr=1e-3 hardware=mi300x  # plans it without them",
    )


def test_processes_on_the_cpu_are_devices_once_asked_for() -> None:
    assert check(LAPTOP, "parallel=tp2_pp2", "cluster.devices_per_node=4") == []


def test_a_model_that_does_not_fit_in_memory_is_only_planned() -> None:
    devices, memory = check(LAPTOP, "model=llama3_8b", "parallel=tp8")
    assert devices.where == "parallel"
    assert devices.fix == ()
    # 16 x 8,030,261,248 bytes are 119.66 GiB, 8 processes 4 GiB.
    assert memory.what == (
        "weights, gradients and optimizer states (16 bytes x 8,030,261,248 parameters) with 8 processes of 0.5 GiB come to 123.7 GiB; "
        "this machine has 16.0 GiB"
    )
    assert memory.fix == ("primus plan model=llama3_8b parallel=tp8 hardware=mi300x  # plans it without them",)


def test_each_replica_on_a_cpu_takes_its_own_memory() -> None:
    machine = Machine(devices=1, is_cpu=True, memory_bytes=30 * 10**9, hardware="cpu")
    overrides = ("model=llama3_2_1b", "training.micro_batch_size=1", "cluster.devices_per_node=2")
    assert check(machine, *overrides, "parallel=fsdp") == []
    (problem,) = check(machine, *overrides, "parallel=dp")
    assert "parameters x dp_replicate 2) with 2 processes of 0.5 GiB come to 37.8 GiB" in problem.what


def test_a_node_is_offered_the_layouts_that_fit_it() -> None:
    (problem,) = check(NODE, "model=llama3_8b", "parallel=tp8", "parallel.pp=4", "training.micro_batch_size=2")
    assert problem.what == "tp 8 x pp 4 x cp 1 x dp 1 needs 32 devices; this machine has 8 devices: 24 missing"
    assert problem.fix == (
        "primus model=llama3_8b training.micro_batch_size=2 parallel=tp8  # fits here",
        "primus model=llama3_8b training.micro_batch_size=2 parallel=fsdp  # FSDP over the 8 devices",
        "primus model=llama3_8b training.micro_batch_size=2 parallel=single  # one device",
        "primus plan model=llama3_8b parallel=tp8 parallel.pp=4 training.micro_batch_size=2 hardware=mi300x  # plans it without them",
    )


def test_a_micro_batch_that_does_not_fit_another_layout_is_left_out() -> None:
    (problem,) = check(NODE, "model=llama3_8b", "parallel=tp8_pp4", "training.micro_batch_size=4")
    assert "primus model=llama3_8b parallel=fsdp  # FSDP over the 8 devices" in problem.fix


def test_one_device_that_cannot_hold_the_model() -> None:
    (problem,) = check(NODE, "model=llama3_70b", "parallel=single")
    assert problem.where == "model"
    assert problem.what == (
        "weights, gradients and optimizer states (16 bytes x 70,553,706,496 parameters) come to 1051.3 GiB on a rank; "
        "a device of this machine has 178.8 GiB"
    )
    assert problem.fix[0] == "primus model=llama3_70b parallel=fsdp  # FSDP over the 8 devices"


def test_hardware_that_is_not_here() -> None:
    (problem,) = check(LAPTOP, "hardware=mi300x")
    assert problem.where == "hardware"
    assert problem.what == "mi300x is not in this machine, which has no accelerator to train on"
    assert problem.fix == (
        "primus parallel=single  # one process on the CPU",
        "primus plan hardware=mi300x  # plans it without them",
    )


def test_more_nodes_than_this_machine() -> None:
    (problem,) = check(NODE, "cluster.nodes=2", "parallel=fsdp", "training.micro_batch_size=1")
    assert problem.what == "2 nodes are asked for, and cluster=local is this machine alone"
    assert problem.fix[0] == "primus training.micro_batch_size=1 parallel=fsdp  # FSDP over the 8 devices"


def test_commands_begin_as_the_program_was_called() -> None:
    config = compose_on(LAPTOP, ["parallel=tp2"])
    plan = make_plan(config, local_devices=1)
    problems = check_devices(
        config, plan, LAPTOP, ["parallel=tp2"], compose=lambda texts: compose_on(LAPTOP, texts), program="python -m primus_app"
    )
    assert "python -m primus_app parallel=single" in str(problems[-1])


def test_what_the_backend_refuses_is_not_offered() -> None:
    config = compose_on(LAPTOP, ["parallel=tp2"])
    plan = make_plan(config, local_devices=1)
    (problem,) = check_devices(
        config,
        plan,
        LAPTOP,
        ["parallel=tp2"],
        compose=lambda texts: compose_on(LAPTOP, texts),
        trains=lambda other, plan: other.parallel.tp == 1,
    )
    assert problem.fix[0].startswith("primus parallel=single")


def test_replaced_overrides_take_the_keys_below_them_along() -> None:
    typed = ["parallel=tp8", "parallel.pp=2", "+parallel.x=1", "parallelism=1", "optimizer.lr=1"]
    assert replace_overrides(typed, {"parallel": "single"}) == ["parallelism=1", "optimizer.lr=1", "parallel=single"]
    assert replace_overrides(typed, {"parallel": None, "optimizer": None}) == ["parallelism=1"]


@pytest.mark.parametrize("name", TP_LAYOUTS)
def test_the_layouts_offered_are_those_of_conf(name: str) -> None:
    layout = ParallelConfig(**yaml.safe_load((conf_dir() / "parallel" / f"{name}.yaml").read_text()))
    assert layout.tp * layout.pp * layout.cp == TP_LAYOUTS[name]
