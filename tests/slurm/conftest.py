"""A real Slurm of four nodes for the tests of this folder."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/slurm_cluster"
sys.path.insert(0, str(ROOT / "scripts"))

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def run_cluster(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def free_port() -> int:
    """The first of a cluster's ports, below those that the system gives out by itself."""
    for port in range(17200, 32000, 200):
        with socket.socket() as probe:
            if all(probe.connect_ex(("127.0.0.1", port + offset)) for offset in (0, 1, 2, 100)):
                return port
    raise RuntimeError("no free port")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Its folder; skipped where the packages or the rights are missing."""
    from slurm import network, packages

    if os.geteuid() != 0 or packages.missing(accounting=False):
        pytest.skip("needs root and Slurm's packages: scripts/slurm_cluster install")
    if not network.can_have_namespaces():
        pytest.skip("needs network namespaces, which this machine does not allow")
    folder = tmp_path_factory.mktemp("slurm")
    started = run_cluster("up", "--dir", str(folder), "--gpus", "2", "--port", str(free_port()), "--subnet", "10.78.0")
    assert started.returncode == 0, started.stderr
    yield folder
    ended = run_cluster("down", "--dir", str(folder))
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def slurm(cluster: Path) -> Command:
    """Runs one of Slurm's commands on the cluster."""

    def ask(*command: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "SLURM_CONF": str(cluster / "slurm.conf")}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60, cwd=cluster)

    return ask
