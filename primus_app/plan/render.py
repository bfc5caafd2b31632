"""A plan as tables for the terminal, and as plain text where the output is not one."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from primus_app.config.errors import Problem
from primus_app.plan.batch import Batch
from primus_app.plan.console import PageConsole, print_table
from primus_app.plan.mesh import Mesh
from primus_app.plan.neighbours import count
from primus_app.plan.parameters import ParameterCount
from primus_app.plan.plan import FLOPS_CONVENTION, Plan
from primus_app.plan.stages import Stage

Row = tuple[str, str, str]
"""A name, a value and what it is made of."""


def render_plan(plan: Plan, console: Console | None = None) -> None:
    """Print the plan; on ``console``, or on standard output."""
    console = console or PageConsole()
    is_plain, width = not console.is_terminal, console.width
    for table in (
        facts_table("Layout", _layout(plan.mesh), is_plain, width),
        facts_table("Batch", _batch(plan.batch), is_plain, width),
        facts_table("Model", _model(plan), is_plain, width),
        _stages(plan.stages, is_plain),
    ):
        if table.row_count:
            print_table(console, table)
            console.print()
    render_problems(plan.problems, console)


def facts(plan: Plan) -> list[Row]:
    """Everything that the first tables say, in their order."""
    return [*_layout(plan.mesh), *_batch(plan.batch), *_model(plan)]


def render_problems(problems: Sequence[Problem], console: Console) -> None:
    """Print what is wrong and what to do. Long lines are left to the terminal to wrap, so that commands can be copied."""
    if not problems:
        return
    title = "1 problem that would stop the run" if len(problems) == 1 else f"{len(problems)} problems, each of which would stop the run"
    console.print(title, style="bold red", markup=False, highlight=False)
    for number, problem in enumerate(problems, 1):
        text = f"{number}. {problem}".replace("\n", "\n   ")
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def facts_table(title: str, rows: Sequence[Row], is_plain: bool, width: int) -> Table:
    """Three columns without heads; where ``width`` leaves the third no room for its words, it is a line of its own."""
    table = _table(title, is_plain)
    table.show_header = False
    names, values = (max((len(row[place]) for row in rows), default=0) for place in (0, 1))
    word = max((len(word) for row in rows for word in row[2].split()), default=0)
    if names + values + word + 4 > width:
        table.add_column(overflow="fold")
        for name, value, note in rows:
            table.add_row(f"[bold]{name:<{names}}[/]  {value:>{values}}")
            if note:
                table.add_row(Padding(note, (0, 0, 0, 2), style="dim"))
        return table
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _table(title: str, is_plain: bool) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=None if is_plain else box.SIMPLE_HEAD, pad_edge=False, highlight=False
    )


def _layout(mesh: Mesh | None) -> list[Row]:
    if mesh is None:
        return []
    rows = [
        ("world", f"{mesh.world:,}", f"{mesh.nodes:,} x {mesh.devices_per_node}, nodes x devices"),
        ("tensor parallel", str(mesh.tp), "tp"),
        ("pipeline parallel", str(mesh.pp), "pp" if mesh.vpp == 1 else f"pp, with {mesh.vpp} virtual stages on each rank"),
        ("context parallel", str(mesh.cp), "cp"),
        ("data parallel", f"{mesh.dp:,}", f"dp_replicate {mesh.dp_replicate} x dp_shard {mesh.dp_shard}"),
    ]
    if mesh.ep > 1 or mesh.etp > 1:
        rows.append(("expert parallel", str(mesh.ep), f"ep, each expert on etp {mesh.etp}"))
    return rows


def _batch(batch: Batch | None) -> list[Row]:
    if batch is None:
        return []
    return [
        ("global batch", f"{batch.global_batch_size:,}", "samples a step"),
        (
            "micro batch",
            f"{batch.micro_batch_size:,}",
            f"samples; {count(batch.accumulation, 'micro batch')} a step on each of dp {batch.dp:,}",
        ),
        ("tokens per step", f"{batch.tokens_per_step:,}", ""),
        ("steps", f"{batch.steps:,}", ""),
        ("tokens", f"{batch.total_tokens:,}", "in all"),
    ]


def _model(plan: Plan) -> list[Row]:
    rows = _parameter_rows(plan.parameters) if plan.parameters else []
    if plan.flops_per_token is not None:
        rows.append(("FLOPs per token", f"{plan.flops_per_token:.4g}", FLOPS_CONVENTION))
    if plan.flops_per_step is not None:
        rows.append(("FLOPs per step", f"{plan.flops_per_step:.4g}", "over all ranks"))
    if plan.model_state_gib is not None:
        rows.append(("model state", _gib(plan.model_state_gib), "weights, gradients, AdamW moments on the fullest rank; no activations"))
    return rows


def _parameter_rows(parameters: ParameterCount) -> list[Row]:
    tied = "embedding tied to the output" if parameters.output == 0 else "embedding and output apart"
    rows = [("parameters", f"{parameters.total:,}", tied)]
    if parameters.active != parameters.total:
        rows.append(("active", f"{parameters.active:,}", "met by one token"))
    return rows


def _gib(size: float) -> str:
    return f"{size:,.0f} GiB" if size >= 100 else f"{size:.3g} GiB"


def _stages(stages: Sequence[Stage], is_plain: bool) -> Table:
    """One line for each run of equal stages; nothing without a pipeline."""
    table = _table("Pipeline", is_plain)
    for name in ("stages", "layers of each", "parameters of each", "on each rank"):
        table.add_column(name, justify="right")
    if len(stages) < 2:
        return table
    for run in _runs(stages):
        first, last = run[0], run[-1]
        span = str(first.index) if first is last else f"{first.index}-{last.index}"
        table.add_row(span, f"{first.num_layers}", f"{first.parameters:,}", f"{first.parameters_per_rank:,}")
    return table


def _runs(stages: Sequence[Stage]) -> list[list[Stage]]:
    runs: list[list[Stage]] = []
    for stage in stages:
        if runs and (runs[-1][0].num_layers, runs[-1][0].parameters) == (stage.num_layers, stage.parameters):
            runs[-1].append(stage)
        else:
            runs.append([stage])
    return runs
