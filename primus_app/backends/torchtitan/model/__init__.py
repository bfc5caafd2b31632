"""From our ModelConfig to TorchTitan's model, one family a file."""

from primus_app.backends.torchtitan.model.build import build_model_spec

__all__ = ["build_model_spec"]
