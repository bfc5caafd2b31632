"""The overrides one by one: syntax, keys and options, each mistake found whatever the others are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from primus_app.config.compose import RESERVED_GROUPS, Request, compose_node, groups
from primus_app.config.errors import Problem
from primus_app.config.suggest import did_you_mean, nearest, nearest_keys

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@dataclass(frozen=True)
class Examined:
    """The overrides that hold, as typed, and the mistakes of the others."""

    good: tuple[str, ...]
    problems: tuple[Problem, ...]


def override_value(overrides: Sequence[str], key: str) -> str | None:
    """The last plain ``key=value`` among the overrides, as text."""
    values = [text.partition("=")[2] for text in overrides if text.partition("=")[0].lstrip("+") == key]
    return values[-1].strip("'\"") if values else None


def examine(request: Request, *, multirun: bool) -> Examined:
    """All mistakes in syntax, group options and keys. Call inside ``hydra_ready``."""
    problems: list[Problem] = []
    parsed: list[Override] = []
    for text in request.overrides:
        override = _parse(text)
        if isinstance(override, Problem):
            problems.append(override)
        elif override.is_sweep_override() and not multirun:
            problems.append(Problem(text, "is a list of values to sweep over", ("add --multirun (or -m) to run each of them",)))
        else:
            parsed.append(override)
    options = groups()
    choices = [override for override in parsed if override.key_or_group in options]
    settings = [override for override in parsed if override.key_or_group not in options]
    bad = {id(override): problem for override in choices if (problem := _wrong_option(override, options))}
    kept = [_first_value(override) for override in choices if id(override) not in bad]
    known = _known_keys(request.with_overrides(kept))
    bad |= {id(override): problem for override in settings if (problem := _wrong_key(override, known, options))}
    problems += bad.values()
    return Examined(tuple(str(override.input_line) for override in parsed if id(override) not in bad), tuple(problems))


def _parse(text: str) -> Override | Problem:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        return Problem(text, "cannot be read as key=value", (_syntax_advice(text, str(error)),))


def _syntax_advice(text: str, error: str) -> str:
    if text.startswith("-"):
        return "options begin the line's keys with no dash: see `primus --help`"
    if "=" not in text:
        return f"write {text}=<value>" if text.replace(".", "").replace("_", "").isalnum() else "write key=value"
    key, _, value = text.partition("=")
    return f"quote the value against the shell and Hydra: '{key}=\"{value}\"'" if value else error.splitlines()[0]


def _first_value(override: Override) -> str:
    """The override itself; of a sweep its first value, since each value has been looked at alone."""
    text = override.input_line
    assert text is not None
    if not override.is_sweep_override():
        return text
    first = next(iter(override.sweep_string_iterator()), "")
    return f"{text.partition('=')[0]}={first}"


def _values(override: Override) -> list[str]:
    if override.is_sweep_override():
        return [str(value) for value in override.sweep_string_iterator()]
    return [str(override.value())]


def _wrong_option(override: Override, options: dict[str, list[str]]) -> Problem | None:
    group = override.key_or_group
    for value in _values(override):
        if value not in options[group] and not (group == "experiment" and value == "None"):
            near = nearest(value, options[group], cutoff=0.5)
            fix = did_you_mean(f"{group}={name}" for name in near) or (f"one of {', '.join(options[group])}",)
            return Problem(str(override.input_line), f"conf/{group}/ has no {value!r}", fix)
    return None


def _wrong_key(override: Override, known: set[str], options: dict[str, list[str]]) -> Problem | None:
    key, text = override.key_or_group, str(override.input_line)
    if override.is_delete():
        return Problem(text, "a key cannot be deleted: every key has a value", (f"set it instead: {key}=<value>",))
    if key in known or key.startswith(("backend.native.", "hydra/")):
        return None
    if key.partition(".")[0] in RESERVED_GROUPS:
        return Problem(text, "no such key", did_you_mean(nearest(key, (name for name in known if not name.endswith(":none")))))
    parent = key.rpartition(".")[0]
    if f"{parent}:none" in known:
        name = parent.rpartition(".")[2]
        return Problem(text, f"there is no {name} here ({parent} is null)", (f"choose a model that has {name}: see conf/model/",))
    names = [*(name for name in known if not name.endswith(":none") and not name.startswith("hydra.")), *options]
    return Problem(text, "no such key", did_you_mean(nearest_keys(key, names)))


def _known_keys(request: Request) -> set[str]:
    """All keys that the chosen options have, Hydra's own too; a section that is null as ``name:none``."""
    node = compose_node(request, with_hydra=True)
    return set(_walk(node, ""))


def _walk(node: Any, prefix: str) -> Iterator[str]:
    from omegaconf import DictConfig

    for name in node:
        key = f"{prefix}{name}"
        yield key
        child = node._get_node(name)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():
            yield from _walk(child, f"{key}.")
        elif child is not None and child._is_none():
            yield f"{key}:none"
