"""What tune says of hardware that has no figures for a time: the layouts that fit with the fewest divisions, and their memory."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from primus_app.cli.layout_choice import ADVICE, SEARCHED, fitting_memory, fixed_degrees, is_legal, plain_layouts, with_layout
from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import Config
from primus_app.plan.console import PageConsole, print_table
from primus_app.plan.estimate.memory import MemoryEstimate
from primus_app.plan.search.ranking import layout_words

GIB = 2**30
Row = tuple[Mapping[str, int | str], MemoryEstimate]


def plain_rows(
    config: Config, overrides: Sequence[str], devices: tuple[int, int], local_bytes: int | None, count: int
) -> tuple[list[Row], int]:
    """The ``count`` plainest layouts that a run may have and that fit, on ``devices`` (nodes, on each), and how many legal ones there are.

    Of those that differ in micro batch and recomputation alone, the first.
    Raises:
        UserError: where there are none.
    """
    nodes, per_node = devices
    found, number = plain_layouts(config, nodes * per_node, per_node, fixed_degrees(config, overrides), local_bytes)
    rows: list[Row] = []
    shown: set[tuple[int | str, ...]] = set()
    for degrees in found:
        division = tuple(degrees[name] for name in SEARCHED)
        if division in shown:
            continue
        chosen = with_layout(config, degrees, nodes, per_node)
        memory = fitting_memory(chosen, per_node, local_bytes) if is_legal(chosen, per_node) else None
        if memory is not None:
            rows.append((degrees, memory))
            shown.add(division)
        if len(rows) == count:
            break
    if not rows:
        what = f"none of {number:,} layouts of {config.model.name} on {nodes * per_node:,} x {config.hardware.name} is legal and fits"
        raise UserError(Problem("tune", what, ADVICE))
    return rows, number


def rows_json(rows: Sequence[Row], number: int, commands: Sequence[str], missing: Sequence[str]) -> str:
    """As tune's of other hardware, without times; time_needs has the keys that are ``missing`` for them."""
    best: list[dict[str, Any]] = [
        {**degrees, "step_s": None, "memory_gib": memory.needed / GIB, "slower_s": {}, "command": command}
        for (degrees, memory), command in zip(rows, commands, strict=True)
    ]
    available = rows[0][1].available
    gib = None if available is None else available / GIB
    return json.dumps({"layouts": number, "best": best, "frontier": [], "device_gib": gib, "time_needs": list(missing)}, indent=2)


def print_rows(config: Config, rows: Sequence[Row], number: int, commands: Sequence[str], world: int) -> None:
    """The table and the commands."""
    console = PageConsole()
    table = Table(
        title=f"{config.model.name} on {world:,} x {config.hardware.name}, {config.backend.name}: of {number:,} layouts those that fit "
        f"and divide the model least ({config.hardware.name} has no figures for a time)",
        title_justify="left",
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
        highlight=False,
    )
    table.add_column("", justify="right")
    table.add_column("layout", overflow="fold")
    table.add_column("GiB, all processes" if rows[0][1].on_cpu else "GiB", justify="right")
    for place, (degrees, memory) in enumerate(rows, 1):
        table.add_row(str(place), layout_words(degrees), f"{memory.needed / GIB:,.1f}")
    print_table(console, table)
    console.print()
    console.print("The commands:")
    for place, command in enumerate(commands, 1):
        console.print(f"{place}. {command}", markup=False, highlight=False, soft_wrap=True)
