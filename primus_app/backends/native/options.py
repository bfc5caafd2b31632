"""The tables that an engine says its own options by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from primus_app.config.schema import Config
from primus_app.plan.mesh import Mesh

Verdict = tuple[str, str] | None
"""What is wrong and what to do."""


@dataclass(frozen=True)
class Option:
    """One option: the annotation that the engine's own field has, what it does, and the names of the rules that it must pass."""

    type: Any
    help: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One given option with everything that bears on it."""

    name: str
    value: Any
    given: Mapping[str, Any]
    config: Config
    mesh: Mesh | None

    def also(self, name: str, default: Any) -> Any:
        """The value of another option, given or the engine's."""
        return self.given.get(name, default)


Rule = Callable[[Case], Verdict]


@dataclass(frozen=True)
class Options:
    """All options of one engine.

    Attributes:
        engine: its name and version, as messages call it.
        passed: those that are passed through, by dotted name.
        owned: options that a key of ours sets: name to that key.
        refused: options that have no key and no effect, or a harmful one: name to the reason.
        rules: by the names that options give.
        owned_sections: sections of which every other field is a key of ours too.
        known_as: the name and the value by which rules know an option.
        whole: what to say of all that is there, where nothing is near.
    """

    engine: str
    passed: Mapping[str, Option]
    owned: Mapping[str, str]
    refused: Mapping[str, str]
    rules: Mapping[str, Rule]
    owned_sections: Mapping[str, str] = field(default_factory=dict)
    known_as: Callable[[str, Any], tuple[str, Any]] = lambda name, value: (name, value)
    whole: str = "docs/native-options.md lists the options"
