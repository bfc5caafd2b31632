"""What the page of a plan shows, put together from the plan and the estimates."""

from collections.abc import Sequence
from dataclasses import replace

from primus_app.config.schema import Config
from primus_app.plan.estimate.memory import MemoryEstimate
from primus_app.plan.estimate.render import shown_stages, term_bytes, verdict_line
from primus_app.plan.estimate.render_time import NAMES, run_rows, step_rows
from primus_app.plan.estimate.subject import layout_of, workload_of
from primus_app.plan.estimate.time import PARTS, TimeEstimate, events
from primus_app.plan.page.bars import Bar
from primus_app.plan.page.gantt import Pass
from primus_app.plan.page.page import Contents, Traffic
from primus_app.plan.plan import Plan
from primus_app.plan.render import Row, facts
from primus_app.plan.steptime.traffic import bytes_sent

GIB = 2**30
ROUNDS = 4
"""Micro batches in a picture of the timeline, for each pipeline rank: its beginning, its rhythm and its end."""
KINDS = {"fits": "fits", "tight": "tight", "does not fit": "unfit", "unknown": "unknown"}


def contents(
    config: Config, plan: Plan, memory: MemoryEstimate | None, time: TimeEstimate | None, command: str, notes: Sequence[str]
) -> Contents:
    """``notes`` are sentences for the head of the page."""
    where = f"{plan.mesh.world:,} x {config.hardware.name}" if plan.mesh else config.hardware.name
    bars = [] if memory is None else [_bar(memory, stage) for stage in shown_stages(len(memory.stages), memory.worst)]
    passes = _passes(config, plan) if time else []
    on_device = memory is not None and not memory.on_cpu and memory.available is not None
    return Contents(
        title=f"{config.model.name} on {where}, {config.backend.name}",
        command=command,
        verdict=verdict_line(config, memory) if memory else "the layout does not come out",
        verdict_kind=KINDS[memory.verdict] if memory else "unfit",
        facts=[*facts(plan), *_time_facts(config, plan, time)],
        memory=bars,
        device_gib=memory.available / GIB if on_device and memory and memory.available else None,
        passes=passes,
        timeline_note=f"{len({each.micro_batch for each in passes})} of {plan.batch.accumulation if plan.batch else 0} micro batches.",
        step=[(NAMES[name], float(getattr(time.step, name))) for name in PARTS if getattr(time.step, name) > 0] if time else [],
        mesh=plan.mesh,
        traffic=_traffic(config, plan, time) if time else [],
        notes=notes,
    )


def _bar(memory: MemoryEstimate, stage: int) -> Bar:
    terms = term_bytes(memory.stages[stage])
    return Bar(f"stage {stage}", tuple((name, size / GIB) for name, size in terms.items()))


def _traffic(config: Config, plan: Plan, time: TimeEstimate) -> list[Traffic]:
    mesh, batch = plan.mesh, plan.batch
    if mesh is None or batch is None:
        return []
    workload, layout = workload_of(config), layout_of(config, mesh, batch)
    sent = bytes_sent(workload, layout)
    domain = config.hardware.link_domain or mesh.devices_per_node
    inner = {"tp": 1, "cp": mesh.tp, "dp": mesh.tp, "pp": mesh.world // mesh.pp, "ep": mesh.etp}
    sizes = {"tp": mesh.tp, "cp": mesh.cp, "ep": mesh.ep, "dp": mesh.dp, "pp": mesh.pp}
    return [
        Traffic(name, size, _place(size, inner[name], domain), sent[name] / GIB, float(getattr(time.step, name)))
        for name, size in sizes.items()
        if size > 1
    ]


def _place(size: int, stride: int, domain: int) -> str:
    """Where a group of ``size`` ranks, each ``stride`` after the one before, lies."""
    if size * stride <= domain:
        return "inside a node"
    inside = max(domain // stride, 1)
    return "between nodes" if inside == 1 else f"{inside} of them on a node"


def _time_facts(config: Config, plan: Plan, time: TimeEstimate | None) -> list[Row]:
    if time is None or plan.mesh is None or plan.batch is None:
        return []
    return [*step_rows(time)[-3:], *run_rows(config, plan.mesh, plan.batch, time)]


def _passes(config: Config, plan: Plan) -> list[Pass]:
    """The timeline of as many micro batches as show the schedule."""
    mesh, batch = plan.mesh, plan.batch
    if mesh is None or batch is None or mesh.pp == 1:
        return []
    count = min(batch.accumulation, ROUNDS * mesh.pp)
    found = events(config, mesh, replace(batch, accumulation=count))
    return [Pass(each.rank, each.work.kind, each.work.micro_batch, each.work.chunk, each.start_s, each.end_s) for each in found]
