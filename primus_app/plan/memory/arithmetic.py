"""Division, choice and maximum that serve plain numbers and arrays of layouts alike."""

from primus_app.plan.workload import Number


def share(amount: Number, ranks: Number) -> Number:
    """The largest of ``ranks`` equal shares of ``amount``, which has no fraction."""
    return -(-amount // ranks)


def choose(condition: Number, then: Number, otherwise: Number) -> Number:
    """``then`` where the condition holds, else ``otherwise``."""
    return otherwise + (then - otherwise) * condition


def larger(first: Number, second: Number) -> Number:
    """The larger of two, element by element."""
    return first + (second - first) * (second > first)


def smaller(first: Number, second: Number) -> Number:
    """The smaller of two, element by element."""
    return first - (first - second) * (second < first)


def clip(value: Number, low: Number, high: Number) -> Number:
    """``value``, but no less than ``low`` and no more than ``high``."""
    return smaller(larger(value, low), high)
