"""What the page of a plan shows, put together from the plan and the estimates."""

from collections.abc import Sequence

from primus_app.config.schema import Config
from primus_app.plan.estimate.memory import MemoryEstimate
from primus_app.plan.estimate.render import shown_stages, term_bytes, verdict_line
from primus_app.plan.page.bars import Bar
from primus_app.plan.page.page import Contents
from primus_app.plan.plan import Plan
from primus_app.plan.render import facts

GIB = 2**30
KINDS = {"fits": "fits", "tight": "tight", "does not fit": "unfit", "unknown": "unknown"}


def contents(config: Config, plan: Plan, memory: MemoryEstimate | None, command: str, notes: Sequence[str]) -> Contents:
    """``notes`` are sentences for the head of the page."""
    where = f"{plan.mesh.world:,} x {config.hardware.name}" if plan.mesh else config.hardware.name
    bars = [] if memory is None else [_bar(memory, stage) for stage in shown_stages(len(memory.stages), memory.worst)]
    on_device = memory is not None and not memory.on_cpu and memory.available is not None
    return Contents(
        title=f"{config.model.name} on {where}, {config.backend.name}",
        command=command,
        verdict=verdict_line(config, memory) if memory else "the layout does not come out",
        verdict_kind=KINDS[memory.verdict] if memory else "unfit",
        facts=facts(plan),
        memory=bars,
        device_gib=memory.available / GIB if on_device and memory and memory.available else None,
        passes=[],
        timeline_note="",
        step=[],
        mesh=plan.mesh,
        traffic=[],
        notes=notes,
    )


def _bar(memory: MemoryEstimate, stage: int) -> Bar:
    terms = term_bytes(memory.stages[stage])
    return Bar(f"stage {stage}", tuple((name, size / GIB) for name, size in terms.items()))
