"""What a key of the schema takes, in words: for a refusal and for the reference page."""

import types
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from primus_app.config.schema import Config
from primus_app.config.schema.base import keys_of

BOUNDS = {"gt": "above", "ge": "from", "lt": "below", "le": "up to"}
"""The attribute of a constraint that pydantic keeps with a field, and how it is said."""


@cache
def schema_fields(model: type[BaseModel] = Config, prefix: str = "") -> dict[str, FieldInfo]:
    """The fields of ``model`` by dotted key, each section before what is in it."""
    found: dict[str, FieldInfo] = {}
    for name, (_, field) in keys_of(model).items():
        found[prefix + name] = field
        if section := section_of(field.annotation):
            found |= schema_fields(section, f"{prefix}{name}.")
    return found


@cache
def schema_leaves() -> tuple[str, ...]:
    """The dotted keys that take a value: all but the sections that are always there."""
    return tuple(key for key, field in schema_fields().items() if not section_of(field.annotation) or None in members(field.annotation))


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, also where it may be None."""
    for choice in members(annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel):
            return choice
    return None


def members(annotation: Any) -> tuple[Any, ...]:
    """The types that a field may hold; NoneType as None."""
    choices = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return tuple(None if choice is types.NoneType else choice for choice in choices)


def takes_truth(field: FieldInfo) -> bool:
    return bool in members(field.annotation)


def allowed(field: FieldInfo) -> str:
    """All that the field takes: ``a whole number above 0 or null``."""
    words = [_words(choice, field.metadata) for choice in members(field.annotation)]
    if words == choices(field):
        return f"only {words[0]}"
    return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else words[0]


def choices(field: FieldInfo) -> list[str]:
    """The words that the field takes, where it takes only some."""
    return [str(word) for choice in members(field.annotation) for word in _literals(choice)]


def _literals(choice: Any) -> tuple[Any, ...]:
    return get_args(choice) if get_origin(choice) is Literal else ()


def _words(choice: Any, metadata: Sequence[Any]) -> str:
    if get_origin(choice) is Annotated:
        choice, *more = get_args(choice)
        metadata = [*metadata, *more]
    if literals := _literals(choice):
        return str(literals[0]) if len(literals) == 1 else f"one of {', '.join(map(str, literals))}"
    if choice in (int, float):
        return " ".join(["a whole number" if choice is int else "a number", *_bounds(metadata)])
    if get_origin(choice) is tuple:
        return f"a list of {len(get_args(choice))} numbers"
    if isinstance(choice, type) and issubclass(choice, BaseModel):
        return "a group of keys"
    if choice is str and any(hasattr(each, "min_length") for each in _constraints(metadata)):
        return "text that is not empty"
    plain: dict[Any, str] = {
        None: "null",
        bool: "true or false",
        str: "text",
        list[str]: "a list of names",
        list[float]: "a list of numbers",
        dict[str, Any]: "keys with values",
    }
    return plain[choice]


def _bounds(metadata: Sequence[Any]) -> Iterator[str]:
    for constraint in _constraints(metadata):
        for attribute, word in BOUNDS.items():
            if (bound := getattr(constraint, attribute, None)) is not None:
                yield f"{word} {bound if isinstance(bound, int) else f'{bound:g}'}"


def _constraints(metadata: Sequence[Any]) -> Iterator[Any]:
    for each in metadata:
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)
