"""The cluster of scripts/slurm_cluster: nodes of their own, what it refuses, and that nothing of it is left."""

from pathlib import Path

import psutil
import pytest

from tests.slurm.conftest import Command, free_port, run_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_each_node_has_a_name_a_network_and_a_scratch_folder_of_its_own(slurm: Command, cluster: Path) -> None:
    said = slurm(
        "srun",
        "-N4",
        "-l",
        "sh",
        "-c",
        f"hostname; cat /etc/hosts | wc -l; touch {cluster}/scratch/$(hostname); ls {cluster}/scratch | wc -l",
    )
    assert said.returncode == 0, said.stderr
    lines = sorted(said.stdout.splitlines())
    assert lines == sorted(f"{task}: {word}" for task in range(4) for word in (f"node{task + 1}", "6", "1"))


def test_accelerators_are_given_out_and_not_more_than_there_are(slurm: Command) -> None:
    assert slurm("srun", "-N1", "--gpus-per-node=2", "printenv", "CUDA_VISIBLE_DEVICES").stdout == "0,1\n"
    assert "Requested node configuration is not available" in slurm("srun", "-N1", "--gpus-per-node=3", "true").stderr


def test_a_failing_task_ends_the_others_and_the_job_has_failed(slurm: Command, cluster: Path) -> None:
    ended = slurm("srun", "-N2", "--kill-on-bad-exit=1", "sh", "-c", "[ $SLURM_PROCID = 0 ] && exec sleep 60; exit 3")
    assert ended.returncode != 0
    assert "JobState=FAILED" in (cluster / "log/jobcomp.txt").read_text()


def test_a_second_start_and_a_path_that_slurm_cannot_read_are_refused(cluster: Path, tmp_path: Path) -> None:
    again = run_cluster("up", "--dir", str(cluster))
    assert again.returncode == 1
    assert f"a cluster is up in {cluster}" in again.stderr
    assert "cannot have blanks" in run_cluster("up", "--dir", str(tmp_path / "a b")).stderr
    assert "1 to 64 nodes" in run_cluster("up", "--dir", str(tmp_path), "--nodes", "0").stderr


def test_without_namespaces_and_nothing_is_left_of_it(cluster: Path, tmp_path: Path) -> None:
    started = run_cluster("up", "--dir", str(tmp_path), "--mode", "plain", "--nodes", "2", "--port", str(free_port()))
    assert started.returncode == 0, started.stderr
    assert "node2       idle" in run_cluster("status", "--dir", str(tmp_path)).stdout
    assert run_cluster("down", "--dir", str(tmp_path)).returncode == 0
    left = [process for process in psutil.process_iter(["cmdline", "status"]) if str(tmp_path) in " ".join(process.info["cmdline"] or [])]
    assert [process for process in left if process.info["status"] != psutil.STATUS_ZOMBIE] == []
    assert run_cluster("status", "--dir", str(tmp_path)).returncode == 1
