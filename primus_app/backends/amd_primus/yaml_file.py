"""A YAML file of Primus: its text, the environment put in, and the files that it extends."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from primus_app.backends.imported.text_file import read_text
from primus_app.config.errors import Problem, UserError

VARIABLE = re.compile(r"\${([^:{}]+)(?::([^}]*))?}")
WHOLE = re.compile(r"-?\d+")
NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
EXTENDS = ("extends", "bases")
WORDS = {"true": True, "false": False, "null": None, "none": None}


class _Loader(yaml.SafeLoader):
    """YAML in which a key is given once: the usual reader would take the last one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        given = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        for key in given:
            if given.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given {given.count(key)} times", node.start_mark)
        return super().construct_mapping(node, deep)


@dataclass
class Substituted:
    """What the environment gave: variables by dotted key, and those that are missing."""

    taken: dict[str, str] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)


def read_yaml(path: str) -> dict[str, Any]:
    """The keys of a file, as they are written.

    Raises:
        UserError: for a file that is missing, broken, or has no keys.
    """
    text = read_text(path, "*.yaml", "*.yml")
    try:
        found = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise UserError(Problem(path, f"is not valid YAML: {getattr(error, 'problem', None) or 'it cannot be read'}{place}")) from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise UserError(Problem(path, "has no keys with values in it", ("Primus' experiments begin with work_group, user_name, exp_name",)))
    return found


def substitute(value: Any, environment: Mapping[str, str], told: Substituted, key: str = "") -> Any:
    """``${NAME}`` and ``${NAME:default}`` replaced; what comes out is a truth, a number or null where it looks like one."""
    if isinstance(value, dict):
        return {name: substitute(each, environment, told, f"{key}.{name}" if key else name) for name, each in value.items()}
    if isinstance(value, list):
        return [substitute(each, environment, told, key) for each in value]
    if not isinstance(value, str) or not VARIABLE.search(value):
        return value

    def replace(found: re.Match[str]) -> str:
        name, default = found.groups()
        if name in environment:
            told.taken[key] = name
        elif default is None:
            told.missing.append((key, name))
        return environment.get(name, default or "")

    return _scalar(VARIABLE.sub(replace, value))


def _scalar(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def extended(keys: Mapping[str, Any]) -> list[str]:
    """The files that a file extends, in the order in which they are read."""
    values = [keys[word] for word in EXTENDS if keys.get(word)]
    return [str(each) for value in values for each in ([value] if isinstance(value, str) else value)]


def merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Section by section; where both have a value, ``upper``'s."""
    result = dict(lower)
    for key, value in upper.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def beside(path: str, name: str) -> str:
    """A file named in the file ``path``: relative to its folder."""
    return str(Path(path).parent / name)
