"""Importing megatron-core for a correction, without its warnings that say nothing to the user."""

import importlib
import warnings
from types import ModuleType

MEANINGLESS = (
    # Which layers are used is our own line in the log.
    r"(Transformer Engine and )?Apex (is|are) not installed",
    # Of Megatron's own making: a default of its configuration, and an import within itself.
    r"full scope is deprecated",
    r"The 'megatron.core.transformer.custom_layers",
)


def upstream(name: str) -> ModuleType:
    """The module called ``name``."""
    for message in MEANINGLESS:
        warnings.filterwarnings("ignore", message=rf"\s*{message}")
    return importlib.import_module(name)
