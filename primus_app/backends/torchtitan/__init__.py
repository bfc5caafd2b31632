"""TorchTitan: our configuration translated to its own, and what it needs to run on any device."""
