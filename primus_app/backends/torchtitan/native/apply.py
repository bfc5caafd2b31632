"""Puts the options of backend.native into TorchTitan's configuration; imports torchtitan only when it is asked to."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

BUDGET = "activation_checkpoint.memory_budget"


def apply_native(config: Any, options: Mapping[str, Any]) -> None:
    """Set each option of TorchTitan's ``config`` in place, by dotted name, and let TorchTitan check the result.

    Raises AttributeError naming the option where this torchtitan has no such field.
    """
    if BUDGET in options:
        from torchtitan.distributed.activation_checkpoint import MemoryBudgetAC

        config.activation_checkpoint = MemoryBudgetAC.Config()
    touched = [config]
    for name, value in options.items():
        touched.insert(0, _set(config, name, value))
    for node in touched:
        if hasattr(node, "__post_init__"):
            node.__post_init__()


def _set(config: Any, name: str, value: Any) -> Any:
    """The section that holds the option."""
    *path, last = name.split(".")
    node = config
    for part in path:
        node = getattr(node, part)
    if last not in {field.name for field in fields(node)}:
        raise AttributeError(f"backend.native.{name}: this torchtitan has no such option; it is written for torchtitan 0.3.0")
    setattr(node, last, value)
    return node
