"""The page put together: pictures as SVG in one HTML file that needs nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from primus_app.plan.mesh import Mesh
from primus_app.plan.page.bars import Bar, pieces, scale
from primus_app.plan.page.gantt import Pass, boxes, height
from primus_app.plan.page.neighbourhood import neighbourhood

TEMPLATE = Path(__file__).with_name("page.html.jinja")

COLOURS = ("#4c78a8", "#5a9e98", "#54a24b", "#d97b29", "#b279a2", "#9d755d", "#7f7f7f", "#c0a53a")
"""By part, in order; white numbers are legible on all of them."""


@dataclass(frozen=True)
class Traffic:
    """What one dimension of the layout sends in a step; ``gib`` by one rank, ``seconds`` as far as nothing hides it."""

    dimension: str
    size: int
    place: str
    gib: float
    seconds: float


@dataclass(frozen=True)
class Contents:
    """What the page shows. Memory in GiB, times in seconds.

    Attributes:
        verdict: one sentence; ``verdict_kind`` is fits, tight, unfit or unknown and gives its colour.
        facts: name, value and what it is made of.
        passes: a part of the timeline; ``timeline_note`` says which.
        step: the parts of a step's time by name.
        notes: whatever else has to be said, problems first.
    """

    title: str
    command: str
    verdict: str
    verdict_kind: str
    facts: Sequence[tuple[str, str, str]]
    memory: Sequence[Bar]
    device_gib: float | None
    passes: Sequence[Pass]
    timeline_note: str
    step: Sequence[tuple[str, float]]
    mesh: Mesh | None
    traffic: Sequence[Traffic]
    notes: Sequence[str] = ()


def render_page(contents: Contents) -> str:
    """The HTML. Only contents from the plan reach it, and all of them are escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    pixels = scale(contents.memory, contents.device_gib)
    step_bar = Bar("step", tuple(contents.step))
    memory_colours, step_colours = _colours(contents.memory), _colours([step_bar])
    text: str = template.render(
        page=contents,
        bars=[(bar, pieces(bar, pixels)) for bar in contents.memory],
        limit_x=contents.device_gib * pixels if contents.device_gib else None,
        memory_colours=memory_colours,
        step_bar=step_bar,
        step_pieces=pieces(step_bar, scale([step_bar], None)),
        step_colours=step_colours,
        boxes=boxes(contents.passes),
        timeline_height=height(contents.passes),
        map=neighbourhood(contents.mesh) if contents.mesh and contents.mesh.world > 1 else None,
    )
    return text


def _colours(bars: Sequence[Bar]) -> dict[str, str]:
    names = list(dict.fromkeys(name for bar in bars for name, _ in bar.parts))
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
