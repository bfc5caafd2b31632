"""A real Slurm on one host, for development and tests."""
