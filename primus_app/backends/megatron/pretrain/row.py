"""One line of the table from our keys to an argument of Megatron-LM, and what its value is worked out from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from primus_app.backends.megatron.translate import transformer_settings
from primus_app.config.schema import Config
from primus_app.plan.batch import Batch
from primus_app.plan.mesh import Mesh
from primus_app.plan.plan import Plan

Value = bool | int | float | str | list[str] | None
"""True is a flag on its own; False and None leave the argument out."""


@dataclass(frozen=True)
class Source:
    """What values are worked out from.

    Attributes:
        settings: what the core runner gives TransformerConfig (translate.transformer_settings).
        cpu: there is no accelerator.
        engine: Transformer Engine's layers are used.
        hosted: for backend.runner=pretrain, which brings weights, samples and records of its own; else for Megatron-LM alone.
    """

    config: Config
    mesh: Mesh
    batch: Batch
    stages: tuple[Any, ...]
    settings: Mapping[str, Any]
    cpu: bool
    engine: bool
    hosted: bool

    @classmethod
    def of(cls, config: Config, plan: Plan, *, cpu: bool, engine: bool, hosted: bool) -> "Source":
        """From a plan without problems."""
        assert plan.mesh is not None
        assert plan.batch is not None
        settings = transformer_settings(config, plan.mesh, plan.stages, cpu=cpu, engine=engine)
        return cls(config, plan.mesh, plan.batch, plan.stages, settings, cpu, engine, hosted)

    @property
    def schedule_steps(self) -> int:
        return self.config.optimizer.schedule_steps or self.batch.steps


Convert = Callable[[Source], Value]


@dataclass(frozen=True)
class Row:
    """``argument`` and how its value comes out of ``keys``; no keys where our mathematics needs it whatever is configured."""

    keys: tuple[str, ...]
    argument: str
    convert: Convert


def row(keys: str, argument: str, convert: Convert) -> Row:
    """A Row with its keys in one text, divided by blanks."""
    return Row(tuple(keys.split()), argument, convert)


def setting(name: str) -> Convert:
    """A field of TransformerConfig as it is; lists and tuples as Megatron's parser reads them, without blanks."""

    def convert(source: Source) -> Value:
        value = source.settings.get(name)
        return str(value).replace(" ", "") if isinstance(value, list | tuple) else value

    return convert


def unless(name: str) -> Convert:
    """A flag that switches off the field of TransformerConfig ``name``."""
    return lambda source: not source.settings[name]


def words(value: Value) -> list[str]:
    """What stands after the argument; numbers so that they are read back exactly."""
    if value is True:
        return []
    if isinstance(value, list):
        return value
    return [repr(value) if isinstance(value, float) else str(value)]
