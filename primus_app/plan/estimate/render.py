"""The estimates as tables for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from primus_app.config.schema import Config
from primus_app.plan.console import print_table
from primus_app.plan.estimate.gate import sentence
from primus_app.plan.estimate.memory import MemoryEstimate
from primus_app.plan.memory.stage_memory import StageMemory

GIB = 2**30
TERMS = ("weights", "gradients", "optimizer", "activations", "temporary", "overhead")
MOST_STAGES = 10
STYLES = {"fits": "bold green", "tight": "bold yellow", "does not fit": "bold red", "unknown": "dim"}


def render_memory(config: Config, memory: MemoryEstimate, console: Console) -> None:
    """A line for each pipeline stage and the verdict."""
    print_table(console, memory_table(memory, is_plain=not console.is_terminal))
    console.print(verdict_line(config, memory), style=STYLES[memory.verdict], markup=False, highlight=False)
    console.print()


def verdict_line(config: Config, memory: MemoryEstimate) -> str:
    """The verdict and what it rests on, one sentence."""
    if memory.available is None:
        return f"unknown: {memory.needed / GIB:,.1f} GiB on the fullest device, and nothing says how much {config.hardware.name} has"
    share = memory.needed / memory.available
    return f"{memory.verdict}: {sentence(config, memory)} ({share:.0%})"


def memory_table(memory: MemoryEstimate, *, is_plain: bool) -> Table:
    """GiB of a rank of each stage; of long pipelines both ends and the fullest."""
    where = "process" if memory.on_cpu else "device"
    table = Table(
        title=f"Memory of a {where}, GiB",
        title_justify="left",
        title_style="bold",
        box=None if is_plain else box.SIMPLE_HEAD,
        pad_edge=False,
        highlight=False,
    )
    for name in ("stage", *TERMS, "total"):
        table.add_column(name, justify="right")
    shown = shown_stages(len(memory.stages), memory.worst)
    for place, stage in enumerate(shown):
        if place and stage > shown[place - 1] + 1:
            table.add_row("...")
        table.add_row(*_row(stage, memory.stages[stage]), style="bold" if stage == memory.worst and len(memory.stages) > 1 else None)
    return table


def shown_stages(count: int, worst: int) -> Sequence[int]:
    """All of a short pipeline, the ends and the fullest of a long one."""
    if count <= MOST_STAGES:
        return range(count)
    return sorted({0, 1, 2, worst, count - 2, count - 1})


def term_bytes(stage: StageMemory) -> dict[str, float]:
    """By TERMS; what the allocator holds in vain counts as overhead."""
    found = {name: float(getattr(stage, name)) for name in TERMS}
    return found | {"overhead": found["overhead"] + float(stage.reserved_in_vain)}


def _row(number: int, stage: StageMemory) -> list[str]:
    terms = term_bytes(stage)
    return [str(number), *(_gib(size) for size in terms.values()), _gib(sum(terms.values()))]


def _gib(size: float) -> str:
    found = size / GIB
    return f"{found:,.1f}" if found >= 10 else f"{found:.2f}" if found >= 0.1 or not size else f"{found:.2g}"
