"""What of backend.native TorchTitan has, takes and heeds: every other option is refused by name. Imports no torch."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from primus_app.backends.torchtitan.native.options import OPTIONS
from primus_app.backends.torchtitan.native.owned import OWNED, REFUSED, SECTIONS_OWNED
from primus_app.backends.torchtitan.native.rules import RULES, Case
from primus_app.config.errors import Problem
from primus_app.config.kinds import allowed, choices, schema_leaves
from primus_app.config.schema import Config
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.config.validate import shown
from primus_app.plan.mesh import Mesh

PREFIX = "backend.native."
PAGE = "docs/native-options.md lists TorchTitan's options"


def check_native(config: Config, mesh: Mesh | None) -> list[Problem]:
    """Every option of backend.native that is unknown, of the wrong type, a key of ours, or without effect; all at once."""
    given = flatten(config.backend.native)
    typed = {name: value for name, value in given.items() if name in OPTIONS and _type_problem(name, value) is None}
    problems = [problem for name, value in given.items() if (problem := _option_problem(name, value))]
    return [*problems, *(problem for name in typed for problem in _rule_problems(name, typed, config, mesh))]


def flatten(native: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The options by dotted name, however deep they were written."""
    found: dict[str, Any] = {}
    for name, value in native.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _option_problem(name: str, value: Any) -> Problem | None:
    if name in OPTIONS:
        return _type_problem(name, value)
    where = PREFIX + name
    if owner := OWNED.get(name) or (SECTIONS_OWNED.get(name.partition(".")[0]) if name not in REFUSED else None):
        owner = name if name in schema_leaves() else owner
        return Problem(where, f"is set by our own {owner}, so that it can be checked and recorded", (_use(owner, value),))
    if name in REFUSED:
        return Problem(where, REFUSED[name], ("leave it out",))
    known = [*OPTIONS, *OWNED, *REFUSED]
    sections = [option for option in OPTIONS if option.startswith(f"{name}.")]
    if sections:
        return Problem(where, f"{shown(value)} is not allowed: it is a section", (f"set one of {', '.join(sections)}",))
    near = nearest(name, OPTIONS) or _by_last_word(name) or nearest(name, known)
    return Problem(where, "TorchTitan 0.3.0 has no such option", did_you_mean(PREFIX + option for option in near) or (PAGE,))


def _use(owner: str, value: Any) -> str:
    simple = " " not in owner and "." in owner and isinstance(value, int | float | str) and not isinstance(value, bool)
    return f"write {owner}={value}" if simple else f"set {owner}"


def _by_last_word(name: str) -> list[str]:
    last = name.rpartition(".")[2]
    by_last = {option.rpartition(".")[2]: option for option in OPTIONS}
    return [by_last[word] for word in nearest(last, by_last, count=2)]


def _type_problem(name: str, value: Any) -> Problem | None:
    annotation = OPTIONS[name].type
    try:
        TypeAdapter(annotation, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError:
        field = FieldInfo.from_annotation(annotation)
        fix = did_you_mean(f"{PREFIX}{name}={word}" for word in nearest(str(value), choices(field), cutoff=0.5))
        return Problem(PREFIX + name, f"{shown(value)} is not allowed; it takes {allowed(field)}", fix)
    return None


def _rule_problems(name: str, typed: Mapping[str, Any], config: Config, mesh: Mesh | None) -> Iterator[Problem]:
    """The first rule that an option fails; the others would say no more."""
    case = Case(name, typed[name], typed, config, mesh)
    for rule in OPTIONS[name].rules:
        if verdict := RULES[rule](case):
            what, fix = verdict
            yield Problem(PREFIX + name, what, (fix,))
            return
