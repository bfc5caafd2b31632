"""The layout that parallel=auto came to when a run was started last, which the run keeps while its devices stay the same."""

from collections.abc import Mapping
from pathlib import Path

from primus_app.config.errors import UserError
from primus_app.config.schema import Config
from primus_app.plan.notes import AUTO, layout_of_config
from primus_app.run.directory import attempts, run_directory
from primus_app.run.snapshot import read_config


def last_layout(config: Config) -> Config | None:
    """The configuration of the newest start of the run ``exp_name`` that took a layout for parallel=auto; None where there is none."""
    if config.exp_name is None:
        return None
    run = run_directory(config)
    folders = [attempt.dir for attempt in reversed(attempts(run))]
    for file in (*(folder / run.config_file.name for folder in folders), run.config_file):
        if file.exists():
            return _chosen(file)
    return None


def kept_degrees(last: Config, config: Config, devices: tuple[int, int], fixed: Mapping[str, int | str]) -> dict[str, int | str] | None:
    """What the run had, where engine, hardware, ``devices`` (nodes, on each) and what is ``fixed`` leave it as good as it was."""
    was = (last.cluster.nodes, last.cluster.devices_per_node, last.backend.name, last.hardware.name)
    degrees = layout_of_config(last)
    is_same = was == (*devices, config.backend.name, config.hardware.name) and fixed.items() <= degrees.items()
    return degrees if is_same else None


def _chosen(file: Path) -> Config | None:
    """None for a layout that was typed, and for a snapshot of another version, which the run's own checks name."""
    try:
        config = read_config(file)
    except UserError:
        return None
    return config if config.parallel.name == AUTO and config.training.micro_batch_size != AUTO else None
