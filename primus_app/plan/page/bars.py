"""Stacked bars: what the memory of each pipeline stage is made of, beside what the device has."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 760.0
"""Of the space that the longest bar may take, in pixels."""
LEAST_LABELLED = 44.0
"""Narrower pieces have their number in the tooltip alone."""


@dataclass(frozen=True)
class Bar:
    """``parts`` are amounts by name, in one unit, in the order in which they are drawn."""

    label: str
    parts: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        return sum(amount for _, amount in self.parts)


@dataclass(frozen=True)
class Piece:
    """A rectangle of a bar, in pixels; ``text`` is empty where it would not fit."""

    name: str
    x: float
    width: float
    amount: float
    text: str


def scale(bars: Sequence[Bar], limit: float | None) -> float:
    """Pixels of one unit: the longest bar and the limit both fit."""
    most = max([bar.total for bar in bars] + ([limit] if limit else []), default=1.0)
    return WIDTH / most if most else 1.0


def pieces(bar: Bar, pixels: float) -> list[Piece]:
    """The rectangles of one bar, from the left; nothing is drawn of what is nothing."""
    found, x = [], 0.0
    for name, amount in bar.parts:
        width = amount * pixels
        if amount > 0:
            found.append(Piece(name, x, width, amount, f"{amount:.1f}" if width >= LEAST_LABELLED else ""))
        x += width
    return found
