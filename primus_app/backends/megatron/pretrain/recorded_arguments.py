"""What Megatron-LM's parser takes: facts recorded per version, or read off a real parser, and whether a list of arguments fits them."""

import json
from argparse import Action, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from primus_app.backends.megatron import recorded as files
from primus_app.config.suggest import nearest

PACKAGE = "primus_app.backends.megatron.pretrain"

_ACTIONS = {"_StoreAction": "store", "_StoreTrueAction": "store_true", "_StoreFalseAction": "store_false"}


@dataclass(frozen=True)
class Fact:
    """One argument of a parser; ``type`` is the name of the function that converts its text, None for text itself."""

    dest: str
    action: str
    type: str | None = None
    nargs: str | int | None = None
    choices: tuple[str, ...] | None = None

    @property
    def is_flag(self) -> bool:
        return self.nargs == 0

    def accepts(self, words: Sequence[str]) -> str:
        """What is wrong with ``words`` after it; empty where nothing is."""
        if self.is_flag:
            return "" if not words else "is a flag now, which takes no value"
        if not words or (len(words) > 1 and self.nargs is None):
            return f"takes {'one value' if self.nargs is None else 'values'}, not {len(words)}"
        if self.choices is not None and (wrong := [word for word in words if word not in self.choices]):
            return f"does not take {', '.join(wrong)}; it takes {', '.join(self.choices)}"
        return next((f"takes {self.type}, not {word}" for word in words if not _converts(word, self.type)), "")


Facts = Mapping[str, Fact]
"""Facts by option string: {"--num-layers": …}."""


def recorded_versions() -> tuple[str, ...]:
    """Versions whose arguments are recorded, oldest first."""
    return files.recorded_versions(PACKAGE)


@cache
def recorded(version: str) -> Facts:
    """The arguments of ``version``, one of :func:`recorded_versions`."""
    found = json.loads(files.recorded_text(PACKAGE, version))
    return {name: Fact(**{**fact, "choices": _tuple(fact.get("choices"))}) for name, fact in found.items()}


def nearest_recorded(version: str) -> str:
    """The recorded version of the same series, or else the newest."""
    return files.nearest_recorded(PACKAGE, version)


def facts_of(parser: ArgumentParser) -> dict[str, Fact]:
    """Those of a real parser."""
    return {option: _fact(action) for action in parser._actions for option in action.option_strings if option.startswith("--")}


def as_json(facts: Facts) -> str:
    """The text of a recorded file: a line for each argument, in alphabetic order."""
    lines = (f"{json.dumps(name)}: {json.dumps(_short(facts[name]))}" for name in sorted(facts))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def misfits(arguments: Sequence[tuple[str, Sequence[str]]], facts: Facts, expected: Facts | None = None) -> Iterator[str]:
    """Every argument that ``facts`` do not know or take otherwise; ``expected`` are the facts that the arguments were written for."""
    for name, words in arguments:
        fact = facts.get(name)
        if fact is None:
            near = nearest(name, facts, count=1)
            yield f"{name}: no such argument{f'; did you mean {near[0]}?' if near else ''}"
        elif what := fact.accepts(words):
            yield f"{name}: {what}"
        elif expected is not None and (was := expected.get(name)) is not None and _kind(was) != _kind(fact):
            yield f"{name}: was {_told(was)} and is {_told(fact)}"


def _fact(action: Action) -> Fact:
    kind = _ACTIONS.get(type(action).__name__, type(action).__name__)
    name = getattr(action.type, "__name__", None) if action.type is not None else None
    choices = tuple(getattr(choice, "name", None) or str(choice) for choice in action.choices) if action.choices is not None else None
    return Fact(action.dest, kind, name, action.nargs, choices)


def _short(fact: Fact) -> dict[str, Any]:
    return {name: value for name, value in asdict(fact).items() if value is not None}


def _kind(fact: Fact) -> tuple[Any, ...]:
    return fact.dest, fact.action, fact.type, fact.nargs


def _told(fact: Fact) -> str:
    return " ".join(str(part) for part in (fact.action, fact.type or "", fact.nargs or "", "of", fact.dest) if part)


def _converts(word: str, kind: str | None) -> bool:
    try:
        {"int": int, "float": float}.get(kind or "", str)(word)
    except ValueError:
        return False
    return True


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
