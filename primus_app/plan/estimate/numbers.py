"""The estimates as plain data, for --json and plan.json."""

from dataclasses import asdict
from math import isfinite
from typing import Any

from primus_app.plan.estimate.memory import MemoryEstimate
from primus_app.plan.estimate.render import term_bytes
from primus_app.plan.estimate.time import PARTS, TimeEstimate


def memory_dict(memory: MemoryEstimate) -> dict[str, Any]:
    """All sizes in bytes."""
    stages = [
        {"stage": number, **term_bytes(stage), "allocated": float(stage.allocated), "total": float(stage.total)}
        for number, stage in enumerate(memory.stages)
    ]
    return {
        "unit": "bytes",
        "stages": stages,
        "fullest_stage": memory.worst,
        "needed": memory.needed,
        "available": memory.available,
        "verdict": memory.verdict,
    }


def time_dict(time: TimeEstimate) -> dict[str, Any]:
    """Seconds; None for what never ends."""
    step = {name: float(getattr(time.step, name)) for name in (*PARTS, "total")}
    found = {
        "step_s": step,
        "tokens_per_s_per_device": float(time.step.tokens_per_s_per_device),
        "mfu": float(time.step.mfu),
        "tokens_per_day": time.tokens_per_day,
        "duration_s": time.duration_s,
        "with_failures_s": time.with_failures_s,
        "device_hours": time.device_hours,
        "cost": time.cost,
        "checkpoint_write_s": time.write_s,
        "reliability": asdict(time.reliability),
    }
    return _finite(found)


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value
