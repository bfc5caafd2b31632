"""What the fields of Megatron's configurations take: facts recorded per version, or read off the classes of a real Megatron."""

import enum
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from primus_app.backends.megatron.recorded import nearest_recorded, recorded_text

PACKAGE = "primus_app.backends.megatron.native"

Fact = tuple[str, ...]
"""What one field takes, any of: words in quotes, or names of WORDS; ``other`` is what nobody can type."""

Facts = Mapping[str, Fact]
"""By dotted name: {"ddp.bucket_size": ("int", "null")}."""

PLAIN: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "null": None,
    "list[str]": list[str],
    "list[int]": list[int],
    "list[float]": list[float],
}
OTHER = "other"


@cache
def recorded_fields(version: str) -> Facts:
    """Those of the recorded version nearest to ``version``."""
    found = json.loads(recorded_text(PACKAGE, nearest_recorded(PACKAGE, version)))
    return {name: tuple(takes) for name, takes in found.items()}


def type_of(fact: Fact) -> Any:
    """The annotation that a value is checked against. Raises KeyError for what nobody can type."""
    words = tuple(each[1:-1] for each in fact if each.startswith("'"))
    kinds = [PLAIN[each] for each in fact if not each.startswith("'")]
    return reduce(or_, [*([Literal[words]] if words else []), *kinds])


def fields_of(classes: Mapping[str, type]) -> dict[str, Fact]:
    """The facts of real dataclasses, by section; private fields are left out."""
    return {
        f"{section}.{field.name}": tuple(dict.fromkeys(_takes(hints[field.name])))
        for section, kind in classes.items()
        for hints in [get_type_hints(kind)]
        for field in fields(kind)
        if not field.name.startswith("_")
    }


def megatron_classes() -> dict[str, type]:
    """The configurations of the megatron-core that Python imports, by the section they have in backend.native."""
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    return {"transformer": MLATransformerConfig, "ddp": DistributedDataParallelConfig, "optimizer": OptimizerConfig}


def as_json(facts: Facts) -> str:
    """The text of a recorded file: a line for each field, in alphabetic order."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(facts[name])}" for name in sorted(facts)) + "\n}\n"


def _takes(hint: Any) -> Iterator[str]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for member in get_args(hint):
            yield from _takes(member)
    elif origin is Literal:
        yield from (f"'{word}'" for word in get_args(hint))
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        yield from (f"'{member.name}'" for member in hint)
    elif origin is list and (name := f"list[{get_args(hint)[0].__name__}]") in PLAIN:
        yield name
    else:
        yield "null" if hint is NoneType else next((name for name, kind in PLAIN.items() if kind is hint), OTHER)
