"""A job file to typed values by the names of torchtitan 0.2, or to everything that is wrong with it."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from primus_app.backends.imported.field import NAMES, Field, wrong_value
from primus_app.backends.imported.text_file import flat, read_text
from primus_app.backends.torchtitan.job_file.fields import FIELDS, LOOKS_LIKE, OLDER_NAMES, OLDER_SECTIONS, OLDER_SPECIAL
from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest

EXTENSIONS = ("job.custom_config_module", "experimental.custom_args_module")
"""Keys that name code of the user's own, which may add keys."""


@dataclass(frozen=True)
class Job:
    """A job file.

    Attributes:
        written: the keys as the file has them, in its order, with their values.
        names: each of them under its name in 0.2; a key of the user's own extension has none.
        presets: values that take the place of TorchTitan's defaults, by their names in 0.2.
    """

    written: dict[str, Any]
    names: dict[str, str]
    presets: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """The value of a key of 0.2: given, a preset's, or TorchTitan's default."""
        for written, known in self.names.items():
            if known == name:
                return self.written[written]
        return self.presets.get(name, FIELDS[name].default)

    def gives(self, name: str) -> bool:
        return name in self.names.values()


def read_job(path: str) -> Job:
    """Read a TOML job file of TorchTitan.

    Raises:
        UserError: for a missing or broken file, one that is none of TorchTitan's, and all unknown keys and wrong values at once.
    """
    written = dict(flat(_toml(path)))
    job = make_job(written)
    if not any(key.partition(".")[0] in LOOKS_LIKE for key in job.names):
        what = f"is no job file of TorchTitan: it has no known key in any of {', '.join(f'[{section}]' for section in LOOKS_LIKE)}"
        raise UserError(Problem(path, what, ("TorchTitan's job files are TOML up to torchtitan 0.2; later ones are Python",)))
    unknown = [] if any(job[name] for name in EXTENSIONS) else [_unknown(path, key) for key in written if key not in job.names]
    if problems := [*unknown, *job_problems(path, job)]:
        raise UserError(problems)
    return job


def make_job(written: Mapping[str, Any], presets: Mapping[str, Any] | None = None) -> Job:
    """The job of dotted keys, unchecked."""
    names = {key: name for key in written if (name := current_name(key)) in FIELDS or name in OLDER_SPECIAL}
    return Job(dict(written), names, presets or {})


def job_problems(path: str, job: Job) -> list[Problem]:
    """Wrong values, and what is given twice."""
    return [*_wrong_values(path, job), *_twice(path, job)]


def current_name(key: str) -> str:
    """What 0.2 calls an older release's key."""
    for older, newer in OLDER_SECTIONS.items():
        if key.startswith(f"{older}."):
            key = newer + key.removeprefix(older)
    return OLDER_NAMES.get(key, key)


def _toml(path: str) -> dict[str, Any]:
    text = read_text(path, "*.toml")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(Problem(path, f"is not valid TOML: {error}", _python_advice(Path(path)))) from None


def _python_advice(file: Path) -> tuple[str, ...]:
    return ("TorchTitan 0.3's configurations are Python functions, which are not read",) if file.suffix == ".py" else ()


def _unknown(path: str, key: str) -> Problem:
    return Problem(f"{path}: {key}", "TorchTitan has no such key", did_you_mean(nearest_names(key)) or ("leave it out",))


def nearest_names(key: str) -> list[str]:
    """Keys of TorchTitan that ``key`` may have meant: in its section, by its last word, by likeness."""
    section, _, last = key.rpartition(".")
    known = [*FIELDS, *OLDER_NAMES]
    siblings = {name.rpartition(".")[2]: name for name in known if name.rpartition(".")[0] == section}
    near = (
        [siblings[word] for word in nearest(last, siblings)]
        or [name for name in known if name.rpartition(".")[2] == last]
        or nearest(key, known, cutoff=0.75)
    )
    return near[:3]


def _wrong_values(path: str, job: Job) -> Iterator[Problem]:
    for key, name in job.names.items():
        known = FIELDS.get(name) or Field(NAMES if name.endswith("prototype") else bool)
        if name == "optimizer.implementation" and isinstance(job.written[key], bool):
            continue  # The first releases had optimizer.fused = true.
        yield from wrong_value(f"{path}: {key}", known, job.written[key])


def _twice(path: str, job: Job) -> Iterator[Problem]:
    """One thing under an older and a newer name."""
    first: dict[str, str] = {}
    for key, name in job.names.items():
        if name in first:
            yield Problem(f"{path}: {key}", f"is the older name of {first[name]}, which the file has too", ("leave one of them out",))
        first.setdefault(name, key)
