"""Type and default of a key of another program, and what is wrong with a value for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pydantic
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from primus_app.config.errors import Problem
from primus_app.config.kinds import allowed, choices
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.config.validate import shown


@dataclass(frozen=True)
class Field:
    """What a key takes, and its value where a file does not have it."""

    type: Any
    default: Any = None


Size = Annotated[int, pydantic.Field(gt=0)]
"""A number of things of which there is at least one."""

NAMES = list[str] | str
"""A list, or text with commas."""

SAID: tuple[tuple[Any, str], ...] = (
    (NAMES, "a list of names, or text with commas"),
    (str | int, "text or a whole number"),
    (list[list[str]], "lists of names"),
    (list[str] | str | None, "text, a list or null"),
    (list[int] | None, "a list of whole numbers or null"),
    (str | list[int | str] | int, "a whole number, a list or text"),
)
"""Types that are no types of ours, in words."""


def wrong_value(where: str, field: Field, value: Any) -> Iterator[Problem]:
    """The problem with ``value``, if it has one; types are strict, but a whole number is a number too."""
    try:
        TypeAdapter(field.type, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError:
        yield Problem(where, f"{shown(value)} is not allowed; it takes {_takes(field)}", _near(field, value))


def _words_of(field: Field) -> str | None:
    return next((words for kind, words in SAID if field.type == kind), None)


def _takes(field: Field) -> str:
    return _words_of(field) or allowed(FieldInfo.from_annotation(field.type))


def _near(field: Field, value: Any) -> tuple[str, ...]:
    if _words_of(field) is not None:
        return ()
    return did_you_mean(nearest(str(value), choices(FieldInfo.from_annotation(field.type)), cutoff=0.5))
