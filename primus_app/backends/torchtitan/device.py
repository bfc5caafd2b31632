"""Lets TorchTitan run on this machine's device: the accelerator that is there, or the CPU."""

import importlib
import os
import sys
import types
import warnings
from dataclasses import dataclass
from typing import Any

from primus_app.backends.memory import peak_rss_bytes
from primus_app.backends.patches import Patch

UNUSABLE_ACCELERATORS = frozenset({"mps"})
"""Accelerators that torch knows but that have no process group, so TorchTitan cannot train on them."""


def device_type() -> str:
    """The device that training uses: torch's name of the accelerator, or "cpu" where none can train."""
    import torch

    if not torch.accelerator.is_available():
        return "cpu"
    accelerator = torch.accelerator.current_accelerator()
    return "cpu" if accelerator is None or accelerator.type in UNUSABLE_ACCELERATORS else accelerator.type


def prepare_device() -> str:
    """Apply the patches of DEVICE_PATCHES that this machine needs, before torchtitan is imported, and return the device type. Idempotent.

    Raises RuntimeError when torchtitan was imported too early or a patch's target is gone.
    """
    for patch in DEVICE_PATCHES:
        if patch.is_needed():
            patch.apply()
    return device_type()


@dataclass(frozen=True)
class CpuProperties:
    """What torch.cuda.get_device_properties would tell, of this machine."""

    name: str
    total_memory: int


class CpuDeviceModule(types.ModuleType):
    """torch.cpu with the calls of torch.cuda that TorchTitan makes; memory is this process's peak resident size."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("torch.cpu"), name)

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def get_device_name(device: object = None) -> str:
        return "CPU"

    @staticmethod
    def get_device_properties(device: object = None) -> CpuProperties:
        return CpuProperties("CPU", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    @staticmethod
    def reset_peak_memory_stats(device: object = None) -> None:
        return None

    @staticmethod
    def empty_cache() -> None:
        return None

    @staticmethod
    def memory_stats(device: object = None) -> dict[str, int]:
        peak = peak_rss_bytes()
        return {"active_bytes.all.peak": peak, "reserved_bytes.all.peak": peak, "num_alloc_retries": 0, "num_ooms": 0}


def leave_out_cpu_warnings(*, seeded: bool) -> None:
    """Keep two warnings that mean nothing here out of every run's log on a CPU; ``seeded`` tells whether we draw the weights.

    Elastic gives each rank a variable of NCCL, and TorchTitan warns that it sets another value. DTensor warns of its random numbers,
    which a model with seeded weights takes none of.
    """
    os.environ.pop("TORCH_NCCL_ASYNC_ERROR_HANDLING", None)
    if seeded:
        message = r"DTensor (random operators|manual_seed\(\)) may not have complete support on cpu device mesh"
        warnings.filterwarnings("ignore", message=message)


CPU_DEVICE_ID = "torchtitan-cpu-device"
CPU_DEVICE_TARGET = "torchtitan.tools.utils.get_device_info"
_PROBES = ("_get_available_device_type", "_get_device_module")


def cpu_device_is_needed() -> bool:
    """Whether there is no accelerator that TorchTitan could train on."""
    return device_type() == "cpu"


def apply_cpu_device() -> None:
    """Import torchtitan.tools.utils while torch's device probe answers "cpu", then put the probe back."""
    if "torchtitan.tools.utils" in sys.modules:
        _require_cpu(sys.modules["torchtitan.tools.utils"])
        return
    utils_of_torch = importlib.import_module("torch._utils")
    originals = {name: getattr(utils_of_torch, name, None) for name in _PROBES}
    if missing := [name for name, probe in originals.items() if probe is None]:
        raise RuntimeError(f"{CPU_DEVICE_ID}: torch._utils.{missing[0]} is gone, which {CPU_DEVICE_TARGET} used to ask for the device.")
    module = CpuDeviceModule("torchtitan_cpu_device")
    utils_of_torch.__dict__.update(zip(_PROBES, (lambda: "cpu", lambda kind: module), strict=True))
    try:
        utils = importlib.import_module("torchtitan.tools.utils")
    finally:
        utils_of_torch.__dict__.update(originals)
    _require_cpu(utils)


def _require_cpu(utils: types.ModuleType) -> None:
    if getattr(utils, "device_type", None) != "cpu" or not isinstance(getattr(utils, "device_module", None), CpuDeviceModule):
        raise RuntimeError(
            f"{CPU_DEVICE_ID}: {CPU_DEVICE_TARGET} chose {getattr(utils, 'device_type', None)!r}, not the CPU: "
            "either torchtitan was imported before prepare_device(), or it no longer asks torch for its device at import."
        )


SET_TIMEOUT_ID = "torch-distributed-set-timeout"
SET_TIMEOUT_TARGET = "torch.distributed.distributed_c10d._set_pg_timeout"


def set_timeout_is_needed() -> bool:
    """Whether this torch lacks the public name that torchtitan 0.3.0 calls."""
    return not hasattr(importlib.import_module("torch.distributed"), "set_timeout")


def apply_set_timeout() -> None:
    """Give torch.distributed the name set_timeout for the function it already has under its older, private name."""
    if not set_timeout_is_needed():
        return
    distributed = importlib.import_module("torch.distributed")
    private = getattr(distributed.distributed_c10d, "_set_pg_timeout", None)
    if private is None:
        raise RuntimeError(f"{SET_TIMEOUT_ID}: this torch has neither torch.distributed.set_timeout nor {SET_TIMEOUT_TARGET}.")
    distributed.__dict__["set_timeout"] = private


DEVICE_PATCHES: tuple[Patch, ...] = (
    Patch(
        id=CPU_DEVICE_ID,
        reason="TorchTitan asks torch for its device at import, takes cuda where there is no accelerator, and has no option for the CPU.",
        upstream="torchtitan 0.3.0",
        target=CPU_DEVICE_TARGET,
        condition="no accelerator that can train",
        is_needed=cpu_device_is_needed,
        apply=apply_cpu_device,
    ),
    Patch(
        id=SET_TIMEOUT_ID,
        reason="TorchTitan calls torch.distributed.set_timeout after the first step, a name that came to torch after 2.13.",
        upstream="torchtitan 0.3.0 with torch 2.13 and before",
        target=SET_TIMEOUT_TARGET,
        condition="torch.distributed has no set_timeout",
        is_needed=set_timeout_is_needed,
        apply=apply_set_timeout,
    ),
)
"""The corrections that prepare_device makes, in order; importing them imports no torch."""
