"""From plain composed data to the frozen Config, or to a list of problems in the user's words."""

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from primus_app.config.errors import Problem
from primus_app.config.schema import Config
from primus_app.config.suggest import did_you_mean, nearest, nearest_keys


def validate(data: dict[str, Any]) -> Config | list[Problem]:
    """The configuration, or everything that is wrong with ``data``."""
    problems = [_truth_for_number(key) for key in _misplaced_booleans(Config, data, "")]
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        keys = list(schema_keys(Config))
        problems += _merge_by_key(_problem(detail, data, keys) for detail in error.errors(include_url=False))
        return problems
    return problems or config


def schema_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """All dotted keys of the schema, sections included."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        yield key
        section = section_of(field.annotation)
        if section is not None:
            yield from schema_keys(section, f"{key}.")


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, also where it may be None."""
    for choice in _choices(annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel):
            return choice
    return None


def _choices(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _misplaced_booleans(model: type[BaseModel], data: Any, prefix: str) -> Iterator[str]:
    """Keys where true or false stands for a number: pydantic would read 1 or 0."""
    if not isinstance(data, dict):
        return
    for name, field in model.model_fields.items():
        value = data.get(name)
        section = section_of(field.annotation)
        if section is not None:
            yield from _misplaced_booleans(section, value, f"{prefix}{name}.")
        elif isinstance(value, bool) and bool not in _choices(field.annotation):
            yield f"{prefix}{name}"


def _truth_for_number(key: str) -> Problem:
    return Problem(key, "is true or false where another kind of value belongs", ("`primus --cfg job` shows every key's default",))


def _merge_by_key(problems: Iterator[Problem]) -> list[Problem]:
    """One problem a key: a union reports once for each of its members."""
    merged: dict[str, Problem] = {}
    for problem in problems:
        first = merged.setdefault(problem.where, problem)
        if first is not problem and problem.what not in first.what:
            merged[problem.where] = Problem(first.where, f"{first.what}, or {_after_comma(problem.what)}", first.fix or problem.fix)
    return list(merged.values())


def _after_comma(text: str) -> str:
    return text.partition(", ")[2] or text


def _problem(detail: Any, data: dict[str, Any], keys: list[str]) -> Problem:
    key = _dotted(detail["loc"], keys)
    value, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return Problem(key, "no such key", did_you_mean(nearest_keys(key, keys)))
        case "missing":
            return Problem(key, "is missing", (_missing_fix(key, data),))
        case "literal_error":
            allowed = _quoted(context["expected"])
            near = did_you_mean(nearest(str(value), allowed, cutoff=0.5))
            return Problem(key, f"{value!r} is not allowed, one of {', '.join(allowed)}", near)
        case "int_parsing" | "int_type" | "int_from_float":
            return Problem(key, f"{value!r} is not allowed, a whole number")
        case "float_parsing" | "float_type":
            return Problem(key, f"{value!r} is not allowed, a number")
        case "bool_parsing" | "bool_type":
            return Problem(key, f"{value!r} is not allowed, true or false")
        case "string_type":
            return Problem(key, f"{value!r} is not allowed, text")
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return Problem(key, f"{value!r} is not allowed, a number {_bound(detail['type'], context)}")
        case "model_type" | "dict_type":
            return Problem(key, f"{value!r} is not allowed, a group of keys", (f"`primus --cfg job --package {key}` shows them",))
        case "value_error":
            return Problem(key, f"{value!r} is not allowed: it {context['error']}")
    return Problem(key, f"{value!r} is not allowed: {detail['msg'][:1].lower()}{detail['msg'][1:]}")


def _dotted(loc: tuple[Any, ...], keys: list[str]) -> str:
    """The key as typed: pydantic appends the names of union members, which are no keys."""
    parts = [str(part) for part in loc]
    while len(parts) > 1 and ".".join(parts) not in keys and ".".join(parts[:-1]) in keys and _is_member(parts[-1]):
        parts.pop()
    return ".".join(parts)


def _is_member(part: str) -> bool:
    return "[" in part or part in ("int", "float", "str", "bool", "constrained-int", "list[str]")


def _missing_fix(key: str, data: dict[str, Any]) -> str:
    group = key.partition(".")[0]
    if group == "model" and (data.get("model") or {}).get("name") in (None, "hf"):
        return "choose a model: model=<name of a file in conf/model>"
    return f"give it: {key}=<value>"


def _quoted(expected: str) -> list[str]:
    return [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]


def _bound(kind: Literal["greater_than", "greater_than_equal", "less_than", "less_than_equal"], context: dict[str, Any]) -> str:
    words = {
        "greater_than": ("above", "gt"),
        "greater_than_equal": ("from", "ge"),
        "less_than": ("below", "lt"),
        "less_than_equal": ("up to", "le"),
    }
    word, name = words[kind]
    return f"{word} {context[name]}"
