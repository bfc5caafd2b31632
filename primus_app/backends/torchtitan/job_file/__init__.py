"""TorchTitan's job files (TOML, up to torchtitan 0.2) read and told in our own settings; imports no torch."""

from primus_app.backends.torchtitan.job_file.convert import Converted, convert
from primus_app.backends.torchtitan.job_file.read import Job, read_job
from primus_app.backends.torchtitan.job_file.row import Fate, Row

__all__ = ["Converted", "Fate", "Job", "Row", "convert", "read_job"]
