"""Rules that options of any engine may name: each says why an option would do nothing or fail, and what to do, or nothing."""

from collections.abc import Callable
from typing import Any

from primus_app.backends.native.options import Case, Rule

LEAVE_OUT = "leave it out"


def needs(holds: Callable[[Case], bool], what: str, fix: str = LEAVE_OUT) -> Rule:
    """Says ``what`` where ``holds`` does not."""
    return lambda case: None if holds(case) else (what, fix)


def one_of(*names: Any) -> Rule:
    """For values whose type says less than the engine takes."""
    words = ", ".join("null" if name is None else str(name) for name in names)
    return lambda case: None if case.value in names else (f"{case.value!r} is not allowed", f"one of {words}")


ABOVE_0 = needs(lambda case: case.value > 0, "must be above 0", "give a number above 0")
FROM_0 = needs(lambda case: case.value >= 0, "must not be below 0", "give 0 or more")
ACCELERATOR = needs(lambda case: case.config.hardware.vendor != "cpu", "has no use on a CPU")
CONTEXT = needs(lambda case: case.config.parallel.cp > 1, "has no effect with parallel.cp=1")
TENSOR = needs(lambda case: case.config.parallel.tp > 1, "has no effect with parallel.tp=1")
