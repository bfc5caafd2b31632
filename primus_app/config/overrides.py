"""The overrides one by one: syntax, keys and options, each mistake found whatever the others are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from primus_app.config.compose import ENGINE_OPTIONS, Request, compose_node, groups, models_with
from primus_app.config.errors import Problem
from primus_app.config.suggest import did_you_mean, nearest, nearest_keys, one_of, where_to_look

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@dataclass(frozen=True)
class Examined:
    """The overrides that hold, as typed, and the mistakes of the others."""

    good: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass
class KnownKeys:
    """What the chosen options have, by dotted key; Hydra's own keys too."""

    leaves: list[str] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)
    nulls: list[str] = field(default_factory=list)

    def __contains__(self, key: object) -> bool:
        return key in self.leaves or key in self.sections


def override_value(overrides: Sequence[str], key: str) -> str | None:
    """The last plain ``key=value`` among the overrides, as text."""
    values = [text.partition("=")[2] for text in overrides if text.partition("=")[0].lstrip("+") == key]
    return values[-1].strip("'\"") if values else None


def examine(request: Request, *, multirun: bool) -> Examined:
    """All mistakes in syntax, group options and keys. Call inside ``hydra_ready``."""
    options = groups(request.config_dir)
    kept, problems = _read(request, options, multirun=multirun)
    choices = [_first_value(override) for override in kept if override.key_or_group in options]
    settings = [override for override in kept if override.key_or_group not in options]
    known = known_keys(request.with_overrides(choices)) if settings else KnownKeys()
    wrong = {id(override): problem for override in settings if (problem := _wrong_key(override, known, options))}
    good = tuple(str(override.input_line) for override in kept if id(override) not in wrong)
    return Examined(good, (*problems, *wrong.values()))


def examine_shape(request: Request, *, multirun: bool) -> Examined:
    """The mistakes that show without composing, some of which Hydra would pass over."""
    kept, problems = _read(request, groups(request.config_dir), multirun=multirun)
    return Examined(tuple(str(override.input_line) for override in kept), tuple(problems))


def known_keys(request: Request) -> KnownKeys:
    """All keys of the composition. Call inside ``hydra_ready``."""
    known = KnownKeys()
    _collect(compose_node(request, with_hydra=True), "", known)
    return known


def _collect(node: Any, prefix: str, known: KnownKeys) -> None:
    from omegaconf import DictConfig

    for name in node:
        key = f"{prefix}{name}"
        child = node._get_node(name)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():
            known.sections.append(key)
            _collect(child, f"{key}.", known)
        else:
            known.leaves.append(key)
            known.nulls += [key] if child is not None and child._is_none() else []


def _read(request: Request, options: dict[str, list[str]], *, multirun: bool) -> tuple[list[Override], list[Problem]]:
    kept: list[Override] = []
    problems: list[Problem] = []
    for text in request.overrides:
        override = _parse(text)
        problem = override if isinstance(override, Problem) else _wrong_shape(override, options, multirun=multirun)
        if problem:
            problems.append(problem)
        elif not isinstance(override, Problem):
            kept.append(override)
    return kept, problems


def _parse(text: str) -> Override | Problem:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return Problem(text, "cannot be read as key=value", (_syntax_advice(text),))
    if (override.key_or_group and "=" in text) or override.is_delete():
        return override
    return Problem(text, "cannot be read as key=value", (_syntax_advice(text),))


def _syntax_advice(text: str) -> str:
    key, equals, value = text.partition("=")
    if not key or not equals:
        is_key = not text[:1].isdigit() and text.replace(".", "").replace("_", "").isalnum()
        return f"write {text}=<value>" if is_key else "write key=value, without spaces around ="
    if not re.fullmatch(r"[\w./@+~-]+", key):
        return "a key is words joined by dots"
    if value.startswith("="):
        return f"write {key}{value}"
    for opening, closing in ("[]", "{}", "()"):
        if value.startswith(opening) and value.count(opening) > value.count(closing):
            return f"the {opening} is never closed by {closing}"
    inner = value.strip("'\"").replace("\\", "\\\\").replace('"', '\\"')
    quoted = f'{key}="{inner}"'
    return "quote the value for Hydra, and all of it for the shell: " + (f"'{quoted}'" if "'" not in quoted else quoted)


def _wrong_shape(override: Override, options: dict[str, list[str]], *, multirun: bool) -> Problem | None:
    key, text = override.key_or_group, str(override.input_line)
    if override.is_delete():
        what = "leave it out" if key == "experiment" else f"set another: {key}=<{'option' if key in options else 'value'}>"
        return Problem(text, "nothing can be deleted: every key has a value", (what,))
    if override.package is not None:
        return Problem(text, "an option goes where its group is", (f"write {key}={override.get_value_string()}",))
    if override.is_sweep_override() and not multirun:
        return Problem(text, "is a list of values to sweep over", ("add --multirun (or -m) to train each; other verbs take one value",))
    if problem := _name_of_an_option(override, options):
        return problem
    if key.startswith(("hydra.", "hydra/")):
        return _without_effect(override, multirun=multirun)
    return _wrong_option(override, options) if key in options else _without_values(override)


def _name_of_an_option(override: Override, options: dict[str, list[str]]) -> Problem | None:
    """precision.name=bf16 would change the name and nothing else; a model may have a name of its own."""
    group, _, last = override.key_or_group.partition(".")
    value = override.get_value_string()
    if last != "name" or group not in options or (group == "model" and value not in options[group]):
        return None
    what = f"changes the name alone; the option is chosen by {group}=<option>"
    return Problem(str(override.input_line), what, did_you_mean(f"{group}={name}" for name in nearest(value, options[group], cutoff=0.5)))


def _without_effect(override: Override, *, multirun: bool) -> Problem | None:
    """Hydra composes and sweeps; where files go and how jobs start is ours."""
    from hydra.conf import HydraConf

    key, text = override.key_or_group, str(override.input_line)
    name = re.split(r"[./]", key)[1]
    if name not in HydraConf.__dataclass_fields__:
        near = did_you_mean(f"hydra.{known}" for known in nearest(name, HydraConf.__dataclass_fields__))
        return Problem(text, "no such key", near or ("`primus --cfg hydra` shows Hydra's own keys",))
    if name == "searchpath" or (multirun and name in ("sweeper", "launcher")):
        return None
    if name == "sweeper":
        return Problem(text, "has no effect without --multirun", ("add --multirun (or -m)",))
    return Problem(text, "has no effect: Hydra composes here, and writes no files", ("leave it out; workspace=<folder> moves all runs",))


def _without_values(override: Override) -> Problem | None:
    if not override.is_sweep_override() or (override.is_discrete_sweep() and not _is_glob(override)):
        return None
    return Problem(str(override.input_line), "cannot be listed value by value", (f"write {override.key_or_group}=<value>,<value>",))


def _is_glob(override: Override) -> bool:
    from hydra.core.override_parser.types import Glob

    return isinstance(override._value, Glob)


def _wrong_option(override: Override, options: dict[str, list[str]]) -> Problem | None:
    group, text = override.key_or_group, str(override.input_line)
    if override.is_add() or override.is_force_add():
        return Problem(text, "an option is chosen without a plus", (f"write {text.lstrip('+')}",))
    if _is_glob(override):
        names = override._value.filter(options[group])  # type: ignore[union-attr]
        return Problem(
            text, "list the options by name", (f"write {group}={','.join(names)}",) if names else one_of(options[group], "options")
        )
    for value in _option_values(override):
        if isinstance(value, dict):
            return Problem(text, f"takes the name of a file in conf/{group}/", (f"set keys one by one: {group}.<key>=<value>",))
        if isinstance(value, list):
            return Problem(text, "takes one option", (f"to run each of them: --multirun {group}={','.join(map(str, value))}",))
        if str(value) not in options[group]:
            return _no_such_option(text, group, value, options[group])
    return None


def _option_values(override: Override) -> list[Any]:
    if override.is_sweep_override():
        return [str(value) for value in override.sweep_string_iterator()]
    return [override.value()]


def _no_such_option(text: str, group: str, value: Any, options: list[str]) -> Problem:
    near = nearest(str(value), options, cutoff=0.5)
    fix = did_you_mean(f"{group}={name}" for name in near) or one_of(options, f"options of {group}")
    if group == "experiment" and str(value).lower() in ("none", "null", ""):
        fix = ("for none, leave it out",)
    name = "null" if value is None else repr(value)
    return Problem(text, f"conf/{group}/ has no {name}", fix)


def _first_value(override: Override) -> str:
    """The override itself; of a sweep its first value, since each value has been looked at alone."""
    text = str(override.input_line)
    if not override.is_sweep_override():
        return text
    return f"{text.partition('=')[0]}={next(iter(override.sweep_string_iterator()), '')}"


def _wrong_key(override: Override, known: KnownKeys, options: dict[str, list[str]]) -> Problem | None:
    key, text = override.key_or_group, str(override.input_line)
    if key == ENGINE_OPTIONS or key.startswith(f"{ENGINE_OPTIONS}."):
        return None
    if key in known:
        return Problem(text, "the key is there already", (f"write {text[1:]}",)) if override.is_add() else None
    if key.startswith("hydra/"):
        return None
    if problem := _missing_section(key, text, known):
        return problem
    leaves = [name for name in known.leaves if name.startswith("hydra.") == key.startswith("hydra.")]
    near = nearest_keys(key, leaves, options)
    return Problem(text, "no such key", did_you_mean(_with_value(near, override, options)) or where_to_look(key, known))


def _missing_section(key: str, text: str, known: KnownKeys) -> Problem | None:
    parent = key.rpartition(".")[0]
    if parent not in known.nulls:
        return None
    name = parent.rpartition(".")[2]
    models = [f"model={model}" for model in models_with(name)][:3]
    fix = f"choose a model that has one, such as {' or '.join(models)}" if models else f"give all of it: '{parent}={{…}}'"
    return Problem(text, f"there is no {name} here: {parent} is null", (fix,))


def _with_value(keys: Sequence[str], override: Override, options: dict[str, list[str]]) -> Iterator[str]:
    """The keys as they would be typed with the same value; not an option that the group has not."""
    value = override.get_value_string() if "=" in str(override.input_line) else ""
    for key in keys:
        fits = "=" not in key and 0 < len(value) <= 40 and (key not in options or value in options[key])
        yield f"{key}={value}" if fits else key
