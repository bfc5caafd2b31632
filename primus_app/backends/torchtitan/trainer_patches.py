"""Corrections of TorchTitan's trainer itself: what no option and no component of ours can change."""

import importlib
import math
from types import ModuleType
from typing import Any

from primus_app.backends.patches import Patch
from primus_app.backends.torchtitan.device import device_type

SLEEP_ID = "torchtitan-final-sleep"
SLEEP_TARGET = "torchtitan.trainer.time"


class _TimeWithoutSleep(ModuleType):
    """The time module as the trainer sees it: everything but sleeping."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("time"), name)

    @staticmethod
    def sleep(seconds: float) -> None:
        return None


def apply_final_sleep() -> None:
    """Take the sleep out of the trainer's own name for the time module; nobody else's changes."""
    _replace("torchtitan.trainer", "time", _TimeWithoutSleep("time"), SLEEP_ID)


PEAK_ID = "torchtitan-cpu-peak"
PEAK_TARGET = "torchtitan.tools.utils.get_peak_flops"


def apply_cpu_peak() -> None:
    """Answer "not a number" for a CPU's peak rate."""
    _replace("torchtitan.tools.utils", "get_peak_flops", lambda device_name: math.nan, PEAK_ID)


def _replace(module_name: str, name: str, value: Any, patch: str) -> None:
    module = importlib.import_module(module_name)
    if not hasattr(module, name):
        raise RuntimeError(f"{patch}: {module_name}.{name} is gone, which this patch replaces.")
    setattr(module, name, value)


TRAINER_PATCHES: tuple[Patch, ...] = (
    Patch(
        id=SLEEP_ID,
        reason="Rank 0 sleeps 2 seconds after the last step; ranks are waited for here by the process group's end.",
        upstream="torchtitan 0.3.0",
        target=SLEEP_TARGET,
        condition="always",
        is_needed=lambda: True,
        apply=apply_final_sleep,
    ),
    Patch(
        id=PEAK_ID,
        reason="TorchTitan takes an A100's peak rate for any device it does not know, a CPU too, and logs it.",
        upstream="torchtitan 0.3.0",
        target=PEAK_TARGET,
        condition="no accelerator that can train",
        is_needed=lambda: device_type() == "cpu",
        apply=apply_cpu_peak,
    ),
)
"""After the device patches, since applying these imports torchtitan; importing this file does not."""
