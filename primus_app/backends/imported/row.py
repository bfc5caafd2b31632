"""What became of one key of another program's file."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from primus_app.config.suggest import did_you_mean


class Fate(StrEnum):
    """How a key was taken over."""

    SAME = "same"
    DIFFERS = "differs"
    NO_MEANING = "no meaning here"
    UNKNOWN = "no such key"


@dataclass(frozen=True)
class Row:
    """What became of one key: ``became`` are overrides, none where our default is the same; ``note`` says what to know about it.

    ``is_default`` where the file does not have the key, and the other program's default is not ours.
    """

    key: str
    value: Any
    became: tuple[str, ...] = ()
    fate: Fate = Fate.SAME
    note: str = ""
    is_default: bool = False


def unknown_row(key: str, value: Any, near: Sequence[str]) -> Row:
    """A key that the other program has not either, and passes over without a word; ``near`` are those it may have meant."""
    return Row(key, value, fate=Fate.UNKNOWN, note="; ".join(["Primus passes over it without a word", *did_you_mean(near)]))
