"""A job file to typed values by the names of torchtitan 0.2, or to everything that is wrong with it."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from primus_app.backends.torchtitan.job_file.fields import FIELDS, LOOKS_LIKE, NAMES, OLDER_NAMES, OLDER_SECTIONS, OLDER_SPECIAL, Field
from primus_app.config.errors import Problem, UserError
from primus_app.config.kinds import allowed, choices
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.config.validate import shown

EXTENSIONS = ("job.custom_config_module", "experimental.custom_args_module")
"""Keys that name code of the user's own, which may add keys."""

TRUTH = FieldInfo.from_annotation(bool)


@dataclass(frozen=True)
class Job:
    """A job file.

    Attributes:
        written: the keys as the file has them, in its order, with their values.
        names: each of them under its name in 0.2; a key of the user's own extension has none.
    """

    written: dict[str, Any]
    names: dict[str, str]

    def __getitem__(self, name: str) -> Any:
        """The value of a key of 0.2, given or TorchTitan's default."""
        for written, known in self.names.items():
            if known == name:
                return self.written[written]
        return FIELDS[name].default

    def gives(self, name: str) -> bool:
        return name in self.names.values()


def read_job(path: str) -> Job:
    """Read a TOML job file of TorchTitan.

    Raises:
        UserError: for a missing or broken file, one that is none of TorchTitan's, and all unknown keys and wrong values at once.
    """
    written = dict(_flat(_toml(path)))
    names = {key: name for key in written if (name := current_name(key)) in FIELDS or name in OLDER_SPECIAL}
    if not any(key.partition(".")[0] in LOOKS_LIKE for key in names):
        what = f"is no job file of TorchTitan: it has no known key in any of {', '.join(f'[{section}]' for section in LOOKS_LIKE)}"
        raise UserError(Problem(path, what, ("TorchTitan's job files are TOML up to torchtitan 0.2; later ones are Python",)))
    job = Job(written, names)
    unknown = [] if any(job[name] for name in EXTENSIONS) else [_unknown(path, key) for key in written if key not in names]
    if problems := [*unknown, *_wrong_values(path, job), *_twice(path, job)]:
        raise UserError(problems)
    return job


def current_name(key: str) -> str:
    """What 0.2 calls an older release's key."""
    for older, newer in OLDER_SECTIONS.items():
        if key.startswith(f"{older}."):
            key = newer + key.removeprefix(older)
    return OLDER_NAMES.get(key, key)


def _toml(path: str) -> dict[str, Any]:
    file = Path(path).expanduser()
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = nearest(file.name, [each.name for each in file.parent.glob("*.toml")]) if file.parent.is_dir() else []
        raise UserError(Problem(path, "no such file", did_you_mean(str(file.parent / name) for name in near))) from None
    except OSError as error:
        raise UserError(Problem(path, f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise UserError(Problem(path, "is not text")) from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(Problem(path, f"is not valid TOML: {error}", _python_advice(file))) from None


def _python_advice(file: Path) -> tuple[str, ...]:
    return ("TorchTitan 0.3's configurations are Python functions, which are not read",) if file.suffix == ".py" else ()


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _unknown(path: str, key: str) -> Problem:
    section, _, last = key.rpartition(".")
    known = [*FIELDS, *OLDER_NAMES]
    siblings = {name.rpartition(".")[2]: name for name in known if name.rpartition(".")[0] == section}
    near = (
        [siblings[word] for word in nearest(last, siblings)]
        or [name for name in known if name.rpartition(".")[2] == last]
        or nearest(key, known, cutoff=0.75)
    )
    return Problem(f"{path}: {key}", "TorchTitan has no such key", did_you_mean(near[:3]) or ("leave it out",))


def _wrong_values(path: str, job: Job) -> Iterator[Problem]:
    for key, name in job.names.items():
        field = FIELDS.get(name) or Field(NAMES if name.endswith("prototype") else bool)
        if name == "optimizer.implementation" and isinstance(job.written[key], bool):
            continue  # The first releases had optimizer.fused = true.
        try:
            TypeAdapter(field.type, config=ConfigDict(strict=True)).validate_python(job.written[key])
        except ValidationError:
            yield Problem(
                f"{path}: {key}", f"{shown(job.written[key])} is not allowed; it takes {_takes(field)}", _near(field, job.written[key])
            )


def _takes(field: Field) -> str:
    if field.type in (NAMES, str | int):
        return "a list of names, or text with commas" if field.type == NAMES else "text or a whole number"
    return "lists of names" if field.type == list[list[str]] else allowed(FieldInfo.from_annotation(field.type))


def _near(field: Field, value: Any) -> tuple[str, ...]:
    if field.type in (NAMES, str | int, list[list[str]]):
        return ()
    return did_you_mean(nearest(str(value), choices(FieldInfo.from_annotation(field.type)), cutoff=0.5))


def _twice(path: str, job: Job) -> Iterator[Problem]:
    """One thing under an older and a newer name."""
    first: dict[str, str] = {}
    for key, name in job.names.items():
        if name in first:
            yield Problem(f"{path}: {key}", f"is the older name of {first[name]}, which the file has too", ("leave one of them out",))
        first.setdefault(name, key)
