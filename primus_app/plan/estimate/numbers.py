"""The estimates as plain data, for --json and plan.json."""

from typing import Any

from primus_app.plan.estimate.memory import MemoryEstimate
from primus_app.plan.estimate.render import term_bytes


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
