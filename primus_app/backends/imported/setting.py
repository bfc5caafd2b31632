"""One setting as it is typed, and left out where it is our default anyway."""

from typing import Any

from primus_app.config.compose import quoted
from primus_app.config.kinds import schema_fields
from primus_app.config.validate import shown

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")


def setting(key: str, value: Any) -> tuple[str, ...]:
    """``key=value`` for Hydra; nothing where the schema's default is the same."""
    field = schema_fields()[key]
    same = not field.is_required() and field.default == value and isinstance(field.default, bool) == isinstance(value, bool)
    return () if same else (f"{key}={as_typed(value)}",)


def native(option: str, value: Any, default: Any) -> tuple[str, ...]:
    """``backend.native.option=value``; nothing where TorchTitan's default is the same."""
    return () if value == default else (f"backend.native.{option}={as_typed(value)}",)


def as_typed(value: Any) -> str:
    """A value as Hydra's grammar reads it back."""
    if isinstance(value, str):
        return value if value and set(value) <= PLAIN else quoted(value)
    if isinstance(value, list):
        return f"[{','.join(as_typed(each) for each in value)}]"
    return repr(value) if isinstance(value, float) else shown(value)


def names(value: list[str] | str) -> list[str]:
    """A list, also where the file has text with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
