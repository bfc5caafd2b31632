"""--config-dir and --config-name: the user's own folder of configuration, looked at before Hydra does."""

from collections.abc import Iterator
from pathlib import Path

from primus_app.config.compose import Request, groups
from primus_app.config.errors import Problem
from primus_app.config.location import conf_dir
from primus_app.config.suggest import did_you_mean, nearest


def folder_problems(request: Request) -> list[Problem]:
    """A folder that is not there, an option that would never be read, a primary configuration that nobody has."""
    folder = Path(request.config_dir) if request.config_dir else None
    if folder and not folder.is_dir():
        return [Problem("--config-dir", f"no such folder: {folder}")]
    return [*(_hidden(folder) if folder else ()), *_missing_primary(request.config_name, folder)]


def _hidden(folder: Path) -> Iterator[Problem]:
    """conf/ comes first in Hydra's search, so an option of the same name in the user's folder would be passed over."""
    for group, options in groups().items():
        for option in options:
            mine, ours = folder / group / f"{option}.yaml", conf_dir() / group / f"{option}.yaml"
            if mine.is_file() and not mine.samefile(ours):
                yield Problem(
                    str(mine), f"is never read: {group}={option} is the one that came with primus", ("give the file another name",)
                )


def _missing_primary(name: str, folder: Path | None) -> Iterator[Problem]:
    roots = [conf_dir(), folder] if folder else [conf_dir()]
    if not any((root / f"{name}.yaml").is_file() for root in roots):
        names = sorted({file.stem for root in roots for file in root.glob("*.yaml")})
        fix = did_you_mean(nearest(name, names, cutoff=0.5)) or (f"found there: {', '.join(names)}",)
        yield Problem("--config-name", f"no file {name}.yaml in {' or '.join(map(str, roots))}", fix)
