"""docs/native-options.md in parts, each made from an engine's tables."""

from collections.abc import Mapping

from pydantic.fields import FieldInfo

from primus_app.backends.native.options import Option
from primus_app.config.kinds import allowed
from primus_app.config.reference import table


def passed_table(options: Mapping[str, Option]) -> str:
    """What is passed through, with what it takes."""
    rows = [(f"`{name}`", allowed(FieldInfo.from_annotation(option.type)), option.help) for name, option in options.items()]
    return table(("option", "takes", "meaning"), rows)


def owned_table(owned: Mapping[str, str]) -> str:
    """What keys of ours set."""
    return table(("option", "is set by"), [(f"`{name}`", owner) for name, owner in owned.items()])


def refused_table(refused: Mapping[str, str]) -> str:
    """What is refused, with reasons; options with one reason in one line."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in refused.items():
        by_reason.setdefault(reason, []).append(f"`{name}`")
    return table(("option", "because it"), [(", ".join(names), reason) for reason, names in by_reason.items()])
