"""A saved step of a run, whichever engine has written it: its weights and moments by their Hugging Face names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from primus_app.backends.base import load_backend
from primus_app.backends.stored_folder import engine_of, is_stored
from primus_app.backends.weight_sources import SafetensorsReader, Source
from primus_app.config.schema import ModelConfig

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Saved:
    """``moments`` are exp_avg and exp_avg_sq of AdamW; all values are float32. Weights alone were saved where reading them fails."""

    weights: Source
    moments: Mapping[str, Source]


def open_saved(step_folder: Path, model: ModelConfig) -> Saved:
    """The content of a complete checkpoint; what is asked for is read then. Raises what a damaged one makes the reading raise."""
    return load_backend(engine_of(step_folder)).open_saved(model, step_folder)


def open_weights(folder: Path, model: ModelConfig) -> Source:
    """The weights in a step folder of either engine, or in a Hugging Face folder."""
    return open_saved(folder, model).weights if is_stored(folder) else SafetensorsReader(folder)
