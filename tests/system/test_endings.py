"""How a run ends when something goes wrong: the exit code, the word in status.json, and no process left behind."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.program import Forge, Start, alive, events, gone, losses, rows, status

pytestmark = pytest.mark.slow
ENDLESS = "training.steps=100000"


def test_a_killed_rank_takes_the_others_down_and_is_named(start: Start) -> None:
    program = start(ENDLESS, "parallel=fsdp", "cluster.devices_per_node=2")
    program.wait_for_step(2)
    processes, ranks = program.descendants(), program.ranks()
    began = time.monotonic()
    ranks[1].kill()
    code, output = program.end()
    assert time.monotonic() - began < 15
    assert code == 4
    assert "rank 1 failed first: killed by SIGKILL" in output
    assert "Traceback" not in output
    found = status(program.run)
    assert (found["state"], found["rank"], found["exit_code"]) == ("failed", 1, 4)
    assert Path(found["log"]).exists()
    assert gone(processes)


def test_a_rank_that_fails_by_itself_shows_its_own_words(start: Start) -> None:
    """After a step at a rate of 1e30 neither the loss nor its gradient need be a number."""
    code, output = start("training.steps=50", "optimizer.lr=1e30", "optimizer.warmup_steps=0").end()
    assert code == 4
    assert "rank 0 failed first: Diverged: the loss of step 2 is " in output
    assert "Lower optimizer.lr" in output
    log = Path(output.split("its log: ")[1].splitlines()[0])
    assert "the loss of step 2 is " in log.read_text()


@pytest.mark.parametrize("engine", ["megatron", "torchtitan"])
def test_a_pipeline_that_diverges_stops_as_one_before_it_saves(forge: Forge, tmp_path: Path, engine: str) -> None:
    """Between two logged steps too; the first stage, which knows no loss, says the same as the last."""
    layout = ("parallel=pp2", "cluster.devices_per_node=2", "logging.every=100", "training.steps=12")
    diverging = ("optimizer.lr=1e30", "optimizer.warmup_steps=0", "checkpoint.every=1")
    run = forge.fail(f"backend={engine}", *layout, *diverging, workspace=tmp_path, exp_name=engine)
    assert status(run)["exit_code"] == 4
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-1"]
    for log in run.glob("attempts/0/forged-*.log"):
        assert re.search(r"Diverged: the loss of step 2 is \S+, its gradient norm nan: training has diverged", log.read_text())


@pytest.mark.parametrize(("number", "state"), [(signal.SIGINT, "cancelled"), (signal.SIGTERM, "preempted")])
def test_a_signal_ends_every_process_and_the_run_can_go_on(start: Start, number: signal.Signals, state: str) -> None:
    program = start(ENDLESS, "parallel=fsdp", "cluster.devices_per_node=2", "checkpoint.every=2")
    program.wait_for_step(3)
    processes = program.descendants()
    program.send(number)
    code, output = program.end()
    assert code == 5
    assert status(program.run)["state"] == state
    assert "exp_name=run goes on after step 2" in output
    assert gone(processes)
    assert "signal" in events(program.run)
    # Every line that was logged is whole, the last one too.
    log = (program.run / "logs" / "pre_trainer" / "rank-0" / "info.log").read_text()
    assert log.endswith("\n")
    assert f"step {rows(program.run)[-1]['step']}:" in log.splitlines()[-1] or "checkpoint" in log.splitlines()[-1].lower()


def test_a_killed_launcher_leaves_nothing_running_and_the_same_command_goes_on(start: Start) -> None:
    unbroken = start("training.steps=12", exp_name="unbroken")
    assert unbroken.end()[0] == 0
    program = start("training.steps=12", "checkpoint.every=3")
    program.wait_for_step(5)
    processes = program.descendants()
    program.process.kill()
    program.process.wait()
    assert gone(processes)
    again = start("training.steps=12", "checkpoint.every=3")
    code, output = again.end()
    assert code == 0, output
    assert (again.run / "attempts" / "1").is_dir()
    assert losses(again.run) == losses(unbroken.run)


def test_the_second_of_two_starts_leaves(start: Start) -> None:
    first = start(ENDLESS)
    first.wait_for_step(1)
    code, output = start(ENDLESS).end()
    assert code == 2
    assert f"pid {first.process.pid}" in output
    assert "exp_name=" in output
    assert first.process.poll() is None
    assert alive(psutil.Process(first.process.pid))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("writing", ["false", "true"])
def test_a_disk_that_fills_up_during_training_is_the_cause_that_is_told(start: Start, disk: Path, writing: str) -> None:
    program = start("training.steps=40", "checkpoint.every=5", f"checkpoint.async={writing}", workspace=disk)
    code, output = program.end()
    assert code == 4
    assert "rank 0 failed first: RuntimeError: the checkpoint of step 5 could not be written (rank 0: " in output
    assert "the disk of the run directory is full" in output
    assert "Traceback" not in output
    assert status(program.run)["state"] == "failed"
    assert "checkpoint" not in events(program.run)
    assert list((program.run / "checkpoints").iterdir()) == []


def test_a_killed_agent_is_accounted_for_by_the_launcher(start: Start) -> None:
    program = start(ENDLESS)
    program.wait_for_step(3)
    processes = program.descendants()
    program.agent().kill()
    code, output = program.end()
    assert code == 4
    assert "the node agent was killed by signal 9" in output
    assert gone(processes)
    assert status(program.run)["state"] == "failed"
    assert rows(program.run)[-1]["step"] - status(program.run)["step"] in (0, 1)  # The rank may have ended a moment later.
    assert events(program.run)[-1] == "failed"


def test_a_full_disk_refuses_before_anything_is_written(start: Start, disk: Path) -> None:
    (disk / "filler").write_bytes(b"x" * (1 << 20))
    program = start("training.steps=2", workspace=disk)
    code, output = program.end()
    assert code == 3
    assert "No space left on device" in output
    assert "workspace=" in output
    assert [path.name for path in disk.iterdir()] == ["filler"]


def test_a_read_only_workspace_is_refused(start: Start, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    code, output = start("training.steps=2", workspace=disk).end()
    assert code == 3
    assert "Read-only file system" in output
    assert "workspace=" in output


def test_a_sweep_runs_each_value_in_its_own_folder(start: Start) -> None:
    program = start("--multirun", "training.steps=2", "optimizer.lr=1e-3,2e-3", "checkpoint=none")
    code, output = program.end()
    assert code == 0, output
    folders = sorted(path.name for path in program.run.iterdir() if path.is_dir())
    assert folders == ["0_optimizer.lr=0.001", "1_optimizer.lr=0.002"]
    assert (program.run / "multirun.yaml").exists()
    assert all(status(program.run / name)["state"] == "completed" for name in folders)


@pytest.mark.parametrize("delay_s", [0.0, 0.3, 1.5, 4.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_before_the_first_step_leaves_no_process(start: Start, number: signal.Signals, delay_s: float) -> None:
    """The agent and the ranks are still importing then."""
    program = start(ENDLESS)
    assert program.process.stdout is not None
    for line in program.process.stdout:
        if line.startswith("run directory"):
            break
    time.sleep(delay_s)
    processes = program.descendants()
    program.send(number)
    code, output = program.end()
    assert gone(processes)
    assert _running(program.run) == []
    if number == signal.SIGINT:
        assert code == 5, output
        assert "Traceback" not in output
        assert status(program.run)["state"] == "cancelled"


def _running(run: Path) -> list[psutil.Process]:
    """Processes of this run that are alive, whoever their parent is."""
    found = [process for process in psutil.process_iter(["cmdline"]) if str(run) in " ".join(process.info["cmdline"] or [])]
    return [process for process in found if alive(process)]


def test_a_second_interrupt_kills_and_is_still_told_as_an_interrupt(start: Start) -> None:
    program = start(ENDLESS)
    program.wait_for_step(1)
    processes = program.descendants()
    program.send(signal.SIGINT)
    program.send(signal.SIGINT)
    assert program.end()[0] == 5
    assert gone(processes)
    assert status(program.run)["state"] == "cancelled"


def test_an_interrupt_ends_a_sweep(start: Start) -> None:
    program = start("--multirun", ENDLESS, "optimizer.lr=1e-3,2e-3")
    first = program.run / "0_optimizer.lr=0.001"
    while not rows(first):
        assert program.process.poll() is None
        time.sleep(0.1)
    program.send(signal.SIGINT)
    assert program.end()[0] == 5
    assert sorted(path.name for path in program.run.iterdir()) == ["0_optimizer.lr=0.001", "multirun.yaml"]


def test_a_mistake_in_the_data_leaves_no_run_behind(start: Start) -> None:
    """The corrected command can have the name."""
    code, output = start("training.steps=2", "training.global_batch_size=10000000").end()
    assert code == 2
    assert output.count("one global batch") == 1
    corrected = start("training.steps=2")
    assert corrected.end()[0] == 0


def _damage(run: Path, step: int) -> None:
    (run / "checkpoints" / f"step-{step}" / "__0_0.distcp").write_bytes(b"broken")


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(start: Start) -> None:
    unbroken = start("training.steps=8", "optimizer.schedule_steps=6", exp_name="unbroken")
    assert unbroken.end()[0] == 0
    assert start("training.steps=6", "checkpoint.every=3").end()[0] == 0
    program = start("training.steps=8", "checkpoint.every=3")
    _damage(program.run, 6)
    code, output = program.end()
    assert code == 0, output
    assert "goes on         after step 3, as checkpoint step-6 is damaged: __0_0.distcp is too short, 6 of" in output
    assert losses(program.run) == losses(unbroken.run)
    warnings = (program.run / "logs" / "pre_trainer" / "rank-0" / "warning.log").read_text()
    assert "checkpoint step-6 is damaged, going back to step-3" in warnings


def test_a_damaged_checkpoint_without_an_older_one_is_the_cause_that_is_told(start: Start) -> None:
    program = start("training.steps=2")
    assert program.end()[0] == 0
    _damage(program.run, 2)
    code, output = start("training.steps=4").end()
    assert code == 4
    assert "left no error of its own" not in output
    assert "Checkpoint" in output
