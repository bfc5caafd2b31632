"""TorchTitan's job files (TOML, up to torchtitan 0.2) read and told in our own settings; imports no torch."""

from primus_app.backends.imported.converted import Converted
from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.torchtitan.job_file.convert import convert
from primus_app.backends.torchtitan.job_file.read import Job, read_job

__all__ = ["Converted", "Fate", "Job", "Row", "convert", "read_job"]
