"""backend.native: options of TorchTitan's own, checked by name, type and effect before the launch; imports no torch."""

from primus_app.backends.native.check import flatten
from primus_app.backends.torchtitan.native.apply import apply_native
from primus_app.backends.torchtitan.native.check import check_native

__all__ = ["apply_native", "check_native", "flatten"]
