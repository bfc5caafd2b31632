"""The legal values nearest to an illegal one, and the sentence that offers them."""

from collections.abc import Callable, Iterable


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def nearest(candidates: Iterable[int], near: int, legal: Callable[[int], bool] = lambda _: True) -> tuple[int, ...]:
    """The largest legal candidate below ``near`` and the smallest above, where there are such."""
    values = [value for value in candidates if value != near and legal(value)]
    below = [value for value in values if value < near]
    above = [value for value in values if value > near]
    return (*([max(below)] if below else []), *([min(above)] if above else []))


def nearest_multiples(unit: int, near: int, *, at_least: int = 1, at_most: int | None = None) -> tuple[int, ...]:
    """The multiples of ``unit`` around ``near`` within the bounds; ``near`` itself is not one of them."""
    smallest = -(-at_least // unit) * unit
    below = (near - 1) // unit * unit
    above = max(near // unit * unit + unit, smallest)
    if at_most is not None:
        below = min(below, at_most // unit * unit)
    inside = (value for value in (below, above) if value >= smallest and (at_most is None or value <= at_most))
    return tuple(dict.fromkeys(inside))


def offer(key: str, values: Iterable[int], why: str = "") -> tuple[str, ...]:
    """A line of advice such as ``parallel.tp=2 or parallel.tp=4``; none without values."""
    text = " or ".join(f"{key}={value}" for value in values)
    return (f"{text}{f' ({why})' if why else ''}",) if text else ()


def count(number: int, noun: str) -> str:
    """A number with its noun: ``1 node``, ``2 nodes``, ``2 micro batches``."""
    plural = f"{noun}es" if noun.endswith(("ch", "ss")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
