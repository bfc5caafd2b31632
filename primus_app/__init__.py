"""primus_app: check, launch, supervise and repeat the training of large language models."""

__version__ = "0.1.0"
