"""A machine whose loopback interface is down is told so before anything starts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from primus_app.launch.loopback import check_loopback

ROOT = Path(__file__).resolve().parents[2]
UNSHARE = ["unshare", "--net", "--map-root-user"]


def test_here_it_answers() -> None:
    assert check_loopback() == []


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0,
    reason="network namespaces are not allowed here",
)
def test_a_new_network_namespace_has_it_down() -> None:
    code = "from primus_app.launch.loopback import check_loopback; print(*check_loopback())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*UNSHARE, sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "127.0.0.1: Network is unreachable" in done.stdout
    assert "ip link set lo up" in done.stdout
