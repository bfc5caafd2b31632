"""The half of a configuration that defines the loss curve, and whether two of them are the same run."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from primus_app.config.schema import Config
from primus_app.config.schema.base import keys_of

LENGTH_KEYS = ("training.steps", "training.tokens")
"""How long a run goes on; may be raised, since the schedule has its own length."""

What = dict[str, Any]
"""Flat dotted keys with plain JSON values: {"model.hidden_size": 256, …}."""


@dataclass(frozen=True)
class Difference:
    """A key with its two values; None where a side has no such key."""

    key: str
    old: Any
    new: Any


def what_of(config: Config) -> What:
    """The *what* of a configuration. A section's own fields decide; an absent section is one key with None."""
    return dict(_leaves(config))


def _leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, (attribute, field) in keys_of(type(section)).items():
        value = getattr(section, attribute)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        elif half_of(field) == "what":
            yield prefix + name, plain(value)


def half_of(field: FieldInfo) -> str:
    """``what`` or ``how``, as the schema marks the field; every field must be marked."""
    extra = field.json_schema_extra
    if not isinstance(extra, dict) or extra.get("half") not in ("what", "how"):
        raise ValueError(f"the schema does not say whether this field is what or how: {field.description}")
    return str(extra["half"])


def plain(value: Any) -> Any:
    """The same value in lists, dicts and scalars, as YAML and JSON give it back."""
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, attribute)) for name, (attribute, _) in keys_of(type(value)).items()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def what_digest(what: What) -> str:
    """Names the loss curve, however long: blake2b of all keys but the length's."""
    curve = {key: value for key, value in what.items() if key not in LENGTH_KEYS}
    return hashlib.blake2b(json.dumps(curve, sort_keys=True).encode(), digest_size=16).hexdigest()


def total_steps(what: What) -> int:
    """Optimizer steps of the whole run: training.steps, or training.tokens rounded up to whole steps."""
    if what["training.steps"] is not None:
        return int(what["training.steps"])
    return -(-int(what["training.tokens"]) // (what["training.global_batch_size"] * what["training.seq_len"]))


def differences(old: What, new: What) -> list[Difference]:
    """Every key whose value differs, in the order of ``new``. A section that only one side has is one difference.

    A key that the schema has since made *how* is none.
    """
    old, new = _fold({key: value for key, value in old.items() if not _is_how(key)}, new), _fold(new, old)
    keys = dict.fromkeys([*new, *old])
    pairs = ((key, _recorded(old, key), new.get(key)) for key in keys)
    return [Difference(key, before, after) for key, before, after in pairs if before != after]


def refused(old: What, new: What) -> list[Difference]:
    """The differences that make it another run: all but a length that is the same or longer."""
    found = differences(old, new)
    others = [difference for difference in found if difference.key not in LENGTH_KEYS]
    return others if others or total_steps(new) >= total_steps(old) else found


def fix_schedule(config: Config, first: int | None = None) -> Config:
    """Fill an open optimizer.schedule_steps: with ``first``, the recorded length of a continued run, or with a new run's length."""
    if config.optimizer.schedule_steps is not None:
        return config
    steps = total_steps(what_of(config)) if first is None else first
    return config.model_copy(update={"optimizer": config.optimizer.model_copy(update={"schedule_steps": steps})})


def _fold(what: What, other: What) -> What:
    """Sections that ``other`` has as None become one value: model.moe.a, model.moe.b -> model.moe = {a, b}."""
    folded: What = {}
    for key, value in what.items():
        parents = (key[:at] for at, char in enumerate(key) if char == ".")
        section = next((parent for parent in parents if parent in other and other[parent] is None), None)
        if section is None:
            folded[key] = value
        else:
            folded.setdefault(section, {})[key[len(section) + 1 :]] = value
    return folded


def _recorded(old: What, key: str) -> Any:
    """The old value; a key that the schema has gained since then had its default."""
    return old[key] if key in old else plain(_default(key))


def _is_how(key: str) -> bool:
    field = _field(key)
    return field is not None and half_of(field) == "how"


def _default(key: str) -> Any:
    field = _field(key)
    return None if field is None or field.is_required() else field.get_default(call_default_factory=True)


def _field(key: str) -> FieldInfo | None:
    section: Any = Config
    *path, name = key.split(".")
    for part in path:
        section = _section_type(section.model_fields[part]) if section and part in section.model_fields else None
    return keys_of(section).get(name, (name, None))[1] if section else None


def _section_type(field: FieldInfo) -> type[BaseModel] | None:
    choices = (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)), None)
