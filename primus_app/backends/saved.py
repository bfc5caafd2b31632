"""A saved step of a run, whichever engine has written it: its weights and moments by their Hugging Face names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from primus_app.backends.base import load_backend
from primus_app.backends.weight_sources import Source
from primus_app.config.schema import ModelConfig

MEGATRON_MARK = "common.pt"
"""Megatron writes this file before all others of a step, TorchTitan never."""


@dataclass(frozen=True)
class Saved:
    """``moments`` are exp_avg and exp_avg_sq of AdamW; all values are float32."""

    weights: Source
    moments: Mapping[str, Source]


def engine_of(step_folder: Path) -> str:
    """The name of the engine that has written a checkpoint."""
    return "megatron" if (step_folder / MEGATRON_MARK).exists() else "torchtitan"


def open_saved(step_folder: Path, model: ModelConfig) -> Saved:
    """The content of a complete checkpoint; what is asked for is read then. Raises what a damaged one makes the reading raise."""
    return load_backend(engine_of(step_folder)).open_saved(model, step_folder)
