"""The registry of corrections: every change of an upstream library at run time is declared, reported and fails loudly."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from primus_app.config.errors import Problem
from primus_app.config.suggest import did_you_mean, nearest

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patch:
    """One correction of an upstream library.

    ``is_needed`` answers for this process; ``apply`` makes the change, may be called twice, and raises RuntimeError
    naming the patch and its target when the target is gone.
    """

    id: str
    reason: str
    upstream: str
    target: str
    condition: str
    is_needed: Callable[[], bool]
    apply: Callable[[], None]


def check_choice(choice: Literal["auto", "none"] | list[str], patches: Sequence[Patch]) -> list[Problem]:
    """Names in ``backend.patches`` that no patch has."""
    if isinstance(choice, str):
        return []
    ids = [patch.id for patch in patches]
    return [
        Problem("backend.patches", f"no patch is called {name!r}", did_you_mean(nearest(name, ids)) or (f"one of {', '.join(ids)}",))
        for name in choice
        if name not in ids
    ]


def apply_patches(choice: Literal["auto", "none"] | list[str], patches: Sequence[Patch]) -> list[Patch]:
    """Apply those of ``patches`` that are chosen and needed, in order; each is reported in the log."""
    applied = []
    for patch in patches:
        chosen = choice == "auto" or (isinstance(choice, list) and patch.id in choice)
        if not patch.is_needed():
            logger.debug("patch %s is not needed: %s does not hold", patch.id, patch.condition)
        elif not chosen:
            logger.warning("patch %s is needed (%s) but not chosen: backend.patches=%s", patch.id, patch.condition, choice)
        else:
            patch.apply()
            applied.append(patch)
            logger.info("patch %s applied to %s, because %s", patch.id, patch.target, patch.condition)
    return applied
