"""The fields of Megatron's configurations that backend.native gives, by either runner's words. Imports no megatron."""

from functools import cache
from typing import Any

from primus_app.backends.megatron.native.fields import recorded_fields
from primus_app.backends.megatron.pretrain.recorded_arguments import Fact, nearest_recorded, recorded
from primus_app.backends.megatron.versions import tested_version
from primus_app.backends.native.check import flatten
from primus_app.config.schema import Config

SECTIONS = ("transformer", "ddp", "optimizer")
OTHERWISE = {"ddp_bucket_size": "ddp.bucket_size", "ddp_pad_buckets_for_high_nccl_busbw": "ddp.pad_buckets_for_high_nccl_busbw"}
"""Arguments of Megatron-LM's trainer that it hands to a field of another name (get_model() of its training.py)."""


def given_fields(config: Config) -> dict[str, Any]:
    """By dotted name: what is given to runner=core, or comes of what is given to Megatron-LM's trainer as arguments."""
    given = flatten(config.backend.native)
    if config.backend.runner == "core":
        return given
    facts = facts_by_name(tested_version(config.backend))
    pairs = (as_field(facts[name], value) for name, value in given.items() if name in facts)
    return {field: value for field, value in pairs if field is not None}


def as_field(fact: Fact, value: Any) -> tuple[str | None, Any]:
    """The field that an argument sets, and to what; None where it is no configuration's."""
    if fact.action == "store_false" and isinstance(value, bool):
        value = not value
    if fact.dest == "cp_comm_type" and isinstance(value, list) and len(value) == 1:
        value = value[0]  # The trainer takes a list always, and hands one word on.
    return field_of(fact), value


def field_of(fact: Fact) -> str | None:
    """The field that an argument sets."""
    if fact.dest in OTHERWISE:
        return OTHERWISE[fact.dest]
    return next((f"{section}.{fact.dest}" for section in SECTIONS if f"{section}.{fact.dest}" in _known_fields()), None)


@cache
def facts_by_name(version: str) -> dict[str, Fact]:
    """The arguments that the trainer of ``version`` takes, by their names in backend.native."""
    return {name_of(option): fact for option, fact in recorded(nearest_recorded(version)).items()}


def name_of(option: str) -> str:
    """``--overlap-grad-reduce`` is overlap_grad_reduce."""
    return option.removeprefix("--").replace("-", "_")


def option_of(name: str, version: str) -> str:
    """The other way round."""
    return next(option for option in recorded(nearest_recorded(version)) if name_of(option) == name)


@cache
def _known_fields() -> frozenset[str]:
    return frozenset(recorded_fields("99.0.0"))
