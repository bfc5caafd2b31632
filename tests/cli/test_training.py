"""What is refused before a run is recorded, and with which exit code; this machine is taken for one without accelerators."""

from pathlib import Path

import pytest

from primus_app.__main__ import main
from primus_app.cli import training
from primus_app.config.compose import Request
from primus_app.config.errors import ExitCode, UserError
from primus_app.launch.devices import Devices

PROGRAM = "./scripts/quickstart"

LAPTOP = Devices("cpu", 1, (), memory_gib=16.0)
CARD_WITHOUT_ENTRY = Devices("unknown", 8, ("MI210",) * 8, memory_gib=512.0, unknown="MI210", nearest="mi250x")


def refused(*overrides: str, devices: Devices = LAPTOP) -> UserError:
    with pytest.raises(UserError) as caught:
        training.check_training(Request(overrides), devices)
    return caught.value


def test_missing_devices_are_the_machines_fault_and_come_with_commands() -> None:
    error = refused("model=llama3_8b", "parallel=tp8")
    assert error.code == ExitCode.UNFIT_MACHINE
    assert "needs 8 devices" in str(error)
    assert "plan model=llama3_8b parallel=tp8 hardware=mi300x" in str(error)


def test_the_commands_begin_as_the_program_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_COMMAND", PROGRAM)
    assert f"{PROGRAM} parallel=tp2 cluster.devices_per_node=2" in str(refused("parallel=tp2"))


@pytest.mark.parametrize("layout", ["parallel=single", "parallel=fsdp", "parallel=tp2"])
def test_more_nodes_than_this_machine_are_refused_at_once(layout: str) -> None:
    error = refused("cluster.nodes=2", layout)
    assert error.code == ExitCode.UNFIT_MACHINE
    (problem,) = error.problems
    assert (problem.where, problem.what) == ("cluster.nodes", "2 nodes are asked for, and cluster=local is this machine alone")
    assert any("parallel=single  # one process on the CPU" in line for line in problem.fix)
    assert not any("cluster.nodes" in line for line in problem.fix if " plan " not in line)


def test_more_nodes_and_another_mistake_are_told_together() -> None:
    error = refused("cluster.nodes=2", "parallel.dp_shard=4", "optimizer.min_lr=1")
    assert error.code == ExitCode.BAD_REQUEST
    assert [problem.where for problem in error.problems] == ["optimizer.min_lr", "cluster.nodes"]
    assert error.problems[-1].fix == ("leave cluster.nodes out",)


@pytest.mark.parametrize("balancing", ["aux_loss", "expert_bias"])
def test_one_key_has_one_problem(balancing: str) -> None:
    (problem,) = refused(f"training.load_balancing={balancing}").problems
    assert problem.where == "training.load_balancing"


def test_a_wrong_request_is_told_together_with_what_is_missing() -> None:
    error = refused("parallel=fsdp", "parallel.dp_shard=4", "training.micro_batch_size=3", "training.load_balancing=aux_loss")
    assert error.code == ExitCode.BAD_REQUEST
    wheres = [problem.where for problem in error.problems]
    assert {"training.micro_batch_size", "training.load_balancing", "parallel"} <= set(wheres)


def test_what_the_engine_cannot_do_is_refused() -> None:
    error = refused("parallel=tp2", "cluster.devices_per_node=2", "model.attention_bias=true")
    assert error.code == ExitCode.BAD_REQUEST
    assert "attention_bias" in str(error)


def test_what_the_engine_cannot_do_is_told_together_with_missing_devices() -> None:
    error = refused("parallel=tp2", "parallel.distributed_optimizer=true")
    assert error.code == ExitCode.BAD_REQUEST
    assert [problem.where for problem in error.problems] == ["parallel.distributed_optimizer", "parallel"]
    assert "needs 2 devices" in error.problems[1].what


def test_a_card_without_an_entry_is_not_taken_for_another() -> None:
    error = refused(devices=CARD_WITHOUT_ENTRY)
    assert error.code == ExitCode.UNFIT_MACHINE
    assert "no conf/hardware entry for MI210" in str(error)
    assert "hardware=mi250x" in str(error)


def test_a_card_without_an_entry_trains_on_the_figures_that_are_named() -> None:
    checked = training.check_training(Request(("hardware=mi250x",)), CARD_WITHOUT_ENTRY)
    assert checked.config.hardware.name == "mi250x"


def test_weights_to_start_from_are_looked_for_before_anything_starts() -> None:
    error = refused("checkpoint.load=nowhere", "model.init_std=0.1", "optimizer.warmup_steps=1000")
    assert error.code == ExitCode.BAD_REQUEST
    assert {"checkpoint.load", "model.init_std", "optimizer.warmup_steps"} == {problem.where for problem in error.problems}


def test_plan_looks_for_the_weights_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "checkpoint.load=nowhere"]) == ExitCode.BAD_REQUEST
    assert "checkpoint.load: no such folder" in capsys.readouterr().out


@pytest.mark.parametrize("workspace", ["/proc/nowhere", "/dev/null/runs"])
def test_a_workspace_that_cannot_be_made_is_refused(workspace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"workspace={workspace}"]) == ExitCode.UNFIT_MACHINE
    assert "workspace=" in capsys.readouterr().err


def test_tokens_take_the_place_of_the_default_steps() -> None:
    checked = training.check_training(Request(("training.tokens=4096",)), LAPTOP)
    assert checked.plan.batch is not None
    assert (checked.config.training.steps, checked.plan.batch.steps) == (None, 2)


@pytest.mark.parametrize(("word", "advice"), [("model", "model=<option>"), ("training.steps", "training.steps=<value>")])
def test_a_word_without_a_value_is_no_verb(word: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == ExitCode.BAD_REQUEST
    assert advice in capsys.readouterr().err


def test_hardware_is_held_against_what_the_machine_has() -> None:
    node = Devices("h200", 8, ("NVIDIA H200",) * 8, memory_gib=512.0)
    for name in ("mi300x", "cpu"):
        error = refused(f"hardware={name}", devices=node)
        assert error.code == ExitCode.UNFIT_MACHINE
        assert "h200" in str(error)
