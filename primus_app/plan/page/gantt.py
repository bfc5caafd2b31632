"""The timeline of a pipeline: a row for each rank, a box for each pass of a micro batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

WIDTH = 1040.0
ROW = 26.0
GAP = 4.0
LEAST_LABELLED = 12.0

Kind = Literal["forward", "backward", "weight"]


@dataclass(frozen=True)
class Pass:
    """One micro batch through one (virtual) stage; times in seconds, ``chunk`` counts the virtual stages of a rank."""

    rank: int
    kind: Kind
    micro_batch: int
    chunk: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Box:
    """A pass in pixels."""

    x: float
    y: float
    width: float
    text: str
    style: str
    tooltip: str


def boxes(passes: Sequence[Pass]) -> list[Box]:
    """Time runs to the right, ranks downwards; later virtual stages are darker."""
    if not passes:
        return []
    start, end = min(each.start_s for each in passes), max(each.end_s for each in passes)
    pixels = WIDTH / (end - start) if end > start else 0.0
    return [_box(each, start, pixels) for each in passes]


def height(passes: Sequence[Pass]) -> float:
    """Of the picture, in pixels."""
    return (max((each.rank for each in passes), default=-1) + 1) * (ROW + GAP)


def _box(each: Pass, start: float, pixels: float) -> Box:
    width = (each.end_s - each.start_s) * pixels
    text = str(each.micro_batch) if width >= LEAST_LABELLED else ""
    virtual = f", virtual stage {each.chunk}" if each.chunk else ""
    tooltip = f"{each.kind} of micro batch {each.micro_batch}{virtual}: {1e3 * (each.end_s - each.start_s):.2f} ms"
    return Box(
        (each.start_s - start) * pixels, each.rank * (ROW + GAP), max(width - 0.5, 0.5), text, f"{each.kind} c{each.chunk % 4}", tooltip
    )
