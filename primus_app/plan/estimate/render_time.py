"""The predicted time as tables for the terminal, and as facts for the page."""

from math import inf, isfinite

from rich.console import Console

from primus_app.config.schema import Config
from primus_app.plan.batch import Batch
from primus_app.plan.estimate.time import PARTS, TimeEstimate
from primus_app.plan.flops import CONVENTIONS
from primus_app.plan.mesh import Mesh
from primus_app.plan.render import Row, facts_table

NAMES = {
    "compute": "compute",
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "dp": "data parallel",
    "pp": "pipeline sends",
    "bubble": "pipeline bubble",
    "optimizer": "optimizer",
}
NOTES = {"compute": "on the slowest stage, with what is computed again", "bubble": "waiting while the pipeline fills and drains"}


def render_time(config: Config, mesh: Mesh, batch: Batch, time: TimeEstimate, console: Console) -> None:
    """A step and its parts, and the whole run."""
    is_plain = not console.is_terminal
    for title, rows in (("Predicted time of a step", step_rows(time)), ("The whole run", run_rows(config, mesh, batch, time))):
        console.print(facts_table(title, rows, is_plain, console.width))
        console.print()


def step_rows(time: TimeEstimate) -> list[Row]:
    """Each part that is there, with its share; then what they come to."""
    total = float(time.step.total)
    parts = [(name, float(getattr(time.step, name))) for name in PARTS]
    rows = [(NAMES[name], duration(part), _share(part / total, name)) for name, part in parts if part > 0]
    return [
        *rows,
        ("a step", duration(total), ""),
        ("tokens/s/device", f"{float(time.step.tokens_per_s_per_device):,.0f}", ""),
        ("MFU", f"{float(time.step.mfu):.1%}", CONVENTIONS["full"].partition(":")[0]),
    ]


def run_rows(config: Config, mesh: Mesh, batch: Batch, time: TimeEstimate) -> list[Row]:
    """Length, cost and failures."""
    found = time.reliability
    rows = [
        ("tokens per day", f"{time.tokens_per_day:,.0f}", ""),
        ("length", duration(time.duration_s), f"{batch.steps:,} steps, {batch.total_tokens:,} tokens, if nothing fails"),
        ("failures", _failures(found.failures), f"{found.failures_per_day:.3g} a day, {config.plan.failures_per_node_day:g} on each node"),
        ("effective", f"{found.effective:.2%}", "of the time it gets ahead, with checkpoints, restarts and steps done again"),
        ("with failures", duration(time.with_failures_s), f"{time.device_hours:,.0f} device hours" if isfinite(time.device_hours) else ""),
    ]
    if time.cost is not None:
        rows.append(("cost", f"{time.cost:,.0f}", f"at {config.hardware.price_per_hour:g} for a device and an hour"))
    return [*rows, _checkpoints(config, time)]


def _checkpoints(config: Config, time: TimeEstimate) -> Row:
    found = time.reliability
    if found.best_interval_s == inf or not found.best_interval_s:
        return "checkpoints", "none needed", "nothing is expected to fail"
    steps = max(1, round(found.best_interval_s / float(time.step.total)))
    effect = (
        f"every {duration(found.best_interval_s)} would be best: {found.best_effective:.2%} effective; each takes {duration(time.write_s)}"
    )
    return "best checkpoints", f"every {steps:,}", f"checkpoint.every={steps}, {effect}; now {config.checkpoint.every}"


def duration(seconds: float) -> str:
    """In the unit that people would say it in."""
    if seconds == inf:
        return "never"
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _share(share: float, name: str) -> str:
    note = f", {NOTES[name]}" if name in NOTES else ", not hidden behind computing" if name in ("tp", "cp", "ep", "dp", "pp") else ""
    return f"{share:.1%}{note}"


def _failures(number: float | None) -> str:
    return "too many" if number is None else f"{number:.2g}"
