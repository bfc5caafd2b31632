"""What a config.json and the tensors beside it have not in common, in one sentence."""

from collections.abc import Mapping
from pathlib import Path

from primus_app.backends.hf_names import hf_buffers, hf_parameters
from primus_app.config.schema import ModelConfig

SHOWN = 3

Shapes = Mapping[str, tuple[int, ...]]


def shapes_of(model: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of ``model`` by its Hugging Face name."""
    return {weight.name: weight.shape for weight in (*hf_parameters(model), *hf_buffers(model))}


def disagreement(folder: Path, there: Shapes, needed: Shapes) -> str | None:
    """How the tensors that are ``there`` differ from those that ``folder``'s config.json needs; None where they do not."""
    surplus = [name for name in there if name not in needed]
    missing = [name for name in needed if name not in there]
    others = [name for name in there if name in needed and tuple(there[name]) != tuple(needed[name])]
    shapes = [f"{name} {there[name]}, by config.json {needed[name]}" for name in others]
    found = [
        *([f"the weights hold {_counted(surplus)} that it does not use ({some(surplus)})"] if surplus else []),
        *([f"it needs {_counted(missing)} that {'are' if len(missing) > 1 else 'is'} not there ({some(missing)})"] if missing else []),
        *([f"{_counted(shapes)} {'have other shapes' if len(shapes) > 1 else 'has another shape'} ({some(shapes)})"] if shapes else []),
    ]
    return f"{folder / 'config.json'} and the weights beside it disagree: {'; '.join(found)}" if found else None


def some(names: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _counted(names: list[str]) -> str:
    return f"{len(names)} tensor{'s' * (len(names) > 1)}"
