"""A picture of the errors as SVG: predicted against published, and the signed errors by source."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from html import escape

from published_errors import Error
from published_tables import family

COLOURS = {"allocated": "#4c78a8", "reserved": "#d97b29", "step time, dense": "#54a24b", "step time, experts": "#b279a2"}
WIDTH, MARGIN, PANEL = 980, 60, 400
TOP, PANEL_HEIGHT = 50, 320
STRIP_TOP, ROW = TOP + PANEL_HEIGHT + 100, 17
STRIP_LEFT, MOST = 290, 0.6
"""Errors of MOST or more are drawn at the edge."""
BAND = 0.15


def plot(errors: list[Error]) -> str:
    """The whole picture."""
    strips = _strips(errors)
    height = STRIP_TOP + ROW * len(strips) + 50
    memory = [each for each in errors if not each.kind.startswith("step")]
    times = [each for each in errors if each.kind.startswith("step")]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11" fill="#333">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        *_panel(memory, MARGIN, 2**30, "Memory of a device, GiB"),
        *_panel(times, MARGIN + PANEL + 80, 1.0, "Step time, s"),
        *_legend(),
        *_by_source(strips, height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(errors: list[Error], left: int, unit: float, title: str) -> Iterator[str]:
    """Predicted over published on logarithmic axes; the band is 15 % to both sides."""
    values = [value / unit for each in errors for value in (each.published, each.published * (1 + each.error))]
    low, high = min(values) * 0.8, max(values) * 1.25

    def place(value: float) -> float:
        return math.log(value / low) / math.log(high / low)

    def x(value: float) -> float:
        return left + PANEL * place(value)

    def y(value: float) -> float:
        return TOP + PANEL_HEIGHT * (1 - place(value))

    yield f'<text x="{left}" y="{TOP - 14}" font-size="14" font-weight="bold">{title}: predicted against published</text>'
    corners = [
        (low, low),
        (low, low * (1 + BAND)),
        (high / (1 + BAND), high),
        (high, high),
        (high, high * (1 - BAND)),
        (low / (1 - BAND), low),
    ]
    yield f'<polygon points="{" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)}" fill="#eee"/>'
    yield f'<line x1="{x(low):.1f}" y1="{y(low):.1f}" x2="{x(high):.1f}" y2="{y(high):.1f}" stroke="#999"/>'
    yield f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{PANEL_HEIGHT}" fill="none" stroke="#999"/>'
    for tick in _ticks(low, high):
        yield f'<text x="{x(tick):.1f}" y="{TOP + PANEL_HEIGHT + 14}" text-anchor="middle">{tick:,g}</text>'
        yield f'<text x="{left - 5}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,g}</text>'
    yield f'<text x="{left + PANEL / 2}" y="{TOP + PANEL_HEIGHT + 30}" text-anchor="middle">published</text>'
    for each in errors:
        yield _dot(x(each.published / unit), y(each.published * (1 + each.error) / unit), each)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis: 1, 2 and 5 of each decade, or decades alone where there are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(decades) > 4 else (1, 2, 5)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def _legend() -> Iterator[str]:
    y = TOP + PANEL_HEIGHT + 54
    for number, (kind, colour) in enumerate(COLOURS.items()):
        x = MARGIN + 150 * number
        yield f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/><text x="{x + 9}" y="{y}">{kind}</text>'


def _strips(errors: list[Error]) -> dict[tuple[str, str], list[Error]]:
    found: dict[tuple[str, str], list[Error]] = defaultdict(list)
    for each in errors:
        found[family(each.source), each.device].append(each)
    return dict(sorted(found.items()))


def _by_source(strips: dict[tuple[str, str], list[Error]], height: int) -> Iterator[str]:
    right = WIDTH - 30
    middle, scale = (STRIP_LEFT + right) / 2, (right - STRIP_LEFT) / 2 / MOST

    def x(error: float) -> float:
        return middle + scale * max(-MOST, min(MOST, error))

    yield f'<text x="{MARGIN}" y="{STRIP_TOP - 12}" font-size="14" font-weight="bold">Signed error by source and device</text>'
    yield from _grid(x, height)
    for number, ((source, device), group) in enumerate(strips.items()):
        y = STRIP_TOP + ROW * number + ROW / 2
        yield f'<text x="{STRIP_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(source)}, {device}</text>'
        for each in group:
            yield _dot(x(each.error), y, each)


def _grid(x: Callable[[float], float], height: int) -> Iterator[str]:
    bottom = height - 45
    for percent in range(-60, 61, 20):
        colour = "#999" if percent == 0 else "#ddd"
        at = x(percent / 100)
        yield f'<line x1="{at:.1f}" y1="{STRIP_TOP}" x2="{at:.1f}" y2="{bottom}" stroke="{colour}"/>'
        yield f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{f"{percent:+d}" if percent else 0} %</text>'


def _dot(x: float, y: float, each: Error) -> str:
    title = escape(f"{each.model[0]}: {each.error:+.1%}")
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[each.kind]}" fill-opacity="0.55"><title>{title}</title></circle>'
