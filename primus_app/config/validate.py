"""From plain composed data to the frozen Config, or to a list of problems in the user's words."""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import ValidationError

from primus_app.config.errors import Problem
from primus_app.config.kinds import allowed, choices, schema_fields, schema_leaves, section_of, takes_truth
from primus_app.config.schema import Config
from primus_app.config.suggest import did_you_mean, nearest, nearest_keys, where_to_look


def validate(data: dict[str, Any]) -> Config | list[Problem]:
    """The configuration, or everything that is wrong with ``data``, one problem a key."""
    problems = list(_misplaced_truths(data))
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        missing = [_key(detail) for detail in details if detail["type"] == "missing" and _key(detail) in schema_fields()]
        problems += [*_missing(missing), *(_problem(detail, data) for detail in details if _key(detail) not in missing)]
    else:
        if not problems:
            return config
    # A union reports once for each of its members.
    return list({problem.where: problem for problem in reversed(problems)}.values())[::-1]


def shown(value: Any) -> str:
    """A value as it is typed: null, true, [98.0, 2.0]; text in quotes."""
    if isinstance(value, str):
        return repr(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
    return re.sub(r"\.(inf|nan)\b", r"\1", text)


def _misplaced_truths(data: dict[str, Any]) -> Iterator[Problem]:
    """Keys where true or false stands for something else: pydantic would read 1 or 0."""
    for key, field in schema_fields().items():
        value = _value(data, key)
        values = value if isinstance(value, list) else [value]
        if any(isinstance(each, bool) for each in values) and not takes_truth(field):
            yield _not_allowed(key, data)


def _missing(keys: list[str]) -> Iterator[Problem]:
    """One problem a section."""
    sections: dict[str, list[str]] = {}
    for key in keys:
        sections.setdefault(key.rpartition(".")[0], []).append(key)
    for section, missing in sections.items():
        fix = f"give it in the file of the model, or as {missing[0]}=<value>" if section == "model" else f"give {missing[0]}=<value>"
        yield Problem(section, f"needs {', '.join(key.rpartition('.')[2] for key in missing)}", (fix,))


def _key(detail: Any) -> str:
    return ".".join(str(part) for part in detail["loc"])


def _problem(detail: Any, data: dict[str, Any]) -> Problem:
    key = _key(detail)
    if detail["type"] == "extra_forbidden":
        key = _first_leaf(key, detail["input"])
        return Problem(key, "no such key", did_you_mean(nearest_keys(key, schema_leaves())) or where_to_look(key, schema_fields()))
    while key not in schema_fields():
        key = key.rpartition(".")[0]
    if detail["type"] == "value_error":
        return Problem(key, f"{shown(detail['input'])} is not allowed: it {detail['ctx']['error']}")
    return _not_allowed(key, data)


def _not_allowed(key: str, data: dict[str, Any]) -> Problem:
    field, value = schema_fields()[key], _value(data, key)
    fix = did_you_mean(f"{key}={word}" for word in nearest(str(value), choices(field), cutoff=0.5))
    if section_of(field.annotation):
        fix = (f"set its keys one by one; `primus --cfg job --package {key}` shows them",)
    return Problem(key, f"{shown(value)} is not allowed; it takes {allowed(field)}", fix)


def _value(data: dict[str, Any], key: str) -> Any:
    value: Any = data
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _first_leaf(key: str, value: Any) -> str:
    """``+trainig.steps=5`` makes a section of that name: the key that was typed says more."""
    while isinstance(value, dict) and value:
        name, value = next(iter(value.items()))
        key = f"{key}.{name}"
    return key
