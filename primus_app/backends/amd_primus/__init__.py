"""Experiments of AMD's Primus (YAML) read and told in our own settings; imports neither torch nor an engine."""

from primus_app.backends.amd_primus.convert import convert
from primus_app.backends.amd_primus.read import Experiment, read_experiment

__all__ = ["Experiment", "convert", "read_experiment"]
