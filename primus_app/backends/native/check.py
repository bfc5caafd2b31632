"""What of backend.native an engine has, takes and heeds: every other option is refused by name."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from primus_app.backends.native.options import Case, Options
from primus_app.config.errors import Problem
from primus_app.config.kinds import allowed, choices, schema_leaves
from primus_app.config.schema import Config
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.config.validate import shown
from primus_app.plan.mesh import Mesh

PREFIX = "backend.native."


def check_options(options: Options, config: Config, mesh: Mesh | None) -> list[Problem]:
    """Every option of backend.native that is unknown, of the wrong type, a key of ours, or without effect; all at once."""
    given = flatten(config.backend.native)
    fitting = {name: value for name, value in given.items() if name in options.passed and _type_problem(options, name, value) is None}
    problems = [problem for name, value in given.items() if (problem := _option_problem(options, name, value))]
    return [*problems, *(problem for name in fitting for problem in _rule_problems(options, name, fitting, config, mesh))]


def flatten(native: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The options by dotted name, however deep they were written."""
    found: dict[str, Any] = {}
    for name, value in native.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _option_problem(options: Options, name: str, value: Any) -> Problem | None:
    if name in options.passed:
        return _type_problem(options, name, value)
    where = PREFIX + name
    section = options.owned_sections.get(name.partition(".")[0]) if name not in options.refused else None
    if owner := options.owned.get(name) or section:
        owner = name if name in schema_leaves() else owner
        return Problem(where, f"is set by our own {owner}, so that it can be checked and recorded", (_use(owner, value),))
    if name in options.refused:
        return Problem(where, options.refused[name], ("leave it out",))
    within = [option for option in options.passed if option.startswith(f"{name}.")]
    if within:
        return Problem(where, f"{shown(value)} is not allowed: it is a section", (f"set one of {', '.join(within)}",))
    known = [*options.passed, *options.owned, *options.refused]
    near = nearest(name, options.passed) or _by_last_word(name, options) or nearest(name, known) or _by_section(name, options)
    return Problem(where, f"{options.engine} has no such option", did_you_mean(PREFIX + option for option in near) or (options.whole,))


def _use(owner: str, value: Any) -> str:
    simple = " " not in owner and "." in owner and isinstance(value, int | float | str) and not isinstance(value, bool)
    return f"write {owner}={value}" if simple else f"set {owner}"


def _by_last_word(name: str, options: Options) -> list[str]:
    last = name.rpartition(".")[2]
    by_last = {option.rpartition(".")[2]: option for option in options.passed}
    return [by_last[word] for word in nearest(last, by_last, count=2)]


def _by_section(name: str, options: Options) -> list[str]:
    """Some of the section that is nearest to the one that was written."""
    section, _, rest = name.partition(".")
    sections = {option.partition(".")[0] for option in options.passed if "." in option}
    within = [option for near in nearest(section, sorted(sections), count=1) for option in options.passed if option.startswith(f"{near}.")]
    by_rest = {option.partition(".")[2]: option for option in within}
    return [by_rest[word] for word in nearest(rest, by_rest)] or within[:3]


def _type_problem(options: Options, name: str, value: Any) -> Problem | None:
    annotation = options.passed[name].type
    try:
        TypeAdapter(annotation, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError:
        field = FieldInfo.from_annotation(annotation)
        fix = did_you_mean(f"{PREFIX}{name}={word}" for word in nearest(str(value), choices(field), cutoff=0.5))
        return Problem(PREFIX + name, f"{shown(value)} is not allowed; it takes {allowed(field)}", fix)
    return None


def _rule_problems(options: Options, name: str, fitting: Mapping[str, Any], config: Config, mesh: Mesh | None) -> Iterator[Problem]:
    """The first rule that an option fails; the others would say no more."""
    known, value = options.known_as(name, fitting[name])
    case = Case(known, value, dict(options.known_as(*each) for each in fitting.items()), config, mesh)
    for rule in options.passed[name].rules:
        if verdict := options.rules[rule](case):
            what, fix = verdict
            yield Problem(PREFIX + name, what, (fix,))
            return
