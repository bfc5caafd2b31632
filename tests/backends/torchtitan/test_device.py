"""The device that TorchTitan is given, each case in a process of its own since it is chosen at import."""

import subprocess
import sys
from pathlib import Path

import pytest

from primus_app.backends.torchtitan.device import device_type

ROOT = Path(__file__).parents[3]
PREPARE = "from primus_app.backends.torchtitan.device import prepare_device, DEVICE_PATCHES\n"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


needs_no_accelerator = pytest.mark.skipif(
    device_type() != "cpu", reason="this machine has an accelerator, which TorchTitan finds by itself"
)


@needs_no_accelerator
@pytest.mark.slow
def test_torchtitan_takes_the_cpu_and_torch_keeps_its_probe() -> None:
    code = """
import torch._utils as utils
before = utils._get_available_device_type, utils._get_device_module
assert prepare_device() == prepare_device() == "cpu"
assert before == (utils._get_available_device_type, utils._get_device_module)
import torch, torchtitan.tools.utils as titan, torch.distributed as dist
assert titan.device_type == "cpu" and callable(dist.set_timeout)
module = titan.device_module
assert module.get_device_properties().total_memory > module.memory_stats()["active_bytes.all.peak"] > 50e6
assert module.current_device() == 0 and module.device_count() == 1
module.set_device(0); module.synchronize(); module.reset_peak_memory_stats(); module.empty_cache()
"""
    result = run(PREPARE + code)
    assert result.returncode == 0, result.stderr


@needs_no_accelerator
@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("import torchtitan.tools.utils", "torchtitan-cpu-device: torchtitan.tools.utils.get_device_info chose 'cuda'"),
        ("import torch._utils as u; del u._get_device_module", "torchtitan-cpu-device: torch._utils._get_device_module is gone"),
        (
            "import torch.distributed as d; d.__dict__.pop('set_timeout', None); del d.distributed_c10d._set_pg_timeout",
            "torch-distributed-set-timeout: this torch has neither",
        ),
    ],
)
def test_a_change_whose_target_is_gone_fails_by_name(spoil: str, message: str) -> None:
    result = run(f"{PREPARE}{spoil}\nprepare_device()")
    assert result.returncode != 0
    assert f"RuntimeError: {message}" in result.stderr
