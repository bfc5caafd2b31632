"""What every section of the configuration has in common: frozen, no unknown keys, each field with its half and its help."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

Half = Literal["what", "how"]
"""*what* defines the loss curve; *how* is the way it is carried out and may change between attempts of one run."""

REQUIRED: Any = ...


class Section(BaseModel):
    """A group of keys. Unknown keys are errors, values never change after validation, text is not taken for numbers."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, coerce_numbers_to_str=True, serialize_by_alias=True
    )


def keys_of(model: type[BaseModel]) -> dict[str, tuple[str, FieldInfo]]:
    """Each key as it is typed, with the attribute that holds it and its field. The two differ for a word of Python's own: async, async_."""
    return {field.alias or name: (name, field) for name, field in model.model_fields.items()}


def what(default: Any, help: str, *, unit: str = "", **constraints: Any) -> Any:
    """A field that defines the loss curve. ``constraints`` are pydantic's (gt, ge, le, min_length …)."""
    return _field(default, help, "what", unit, constraints)


def how(default: Any, help: str, *, unit: str = "", **constraints: Any) -> Any:
    """A field that says how the run is carried out, without bearing on its loss curve."""
    return _field(default, help, "how", unit, constraints)


def _field(default: Any, help: str, half: Half, unit: str, constraints: dict[str, Any]) -> Any:
    return Field(default, description=help, json_schema_extra={"half": half, "unit": unit}, **constraints)
