"""The text of a file that a user names, and the keys of what was read from it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest


def read_text(path: str, *patterns: str) -> str:
    """The text of ``path``; where there is none, the nearest of the files in its folder that match ``patterns`` is offered.

    Raises:
        UserError: where there is no such file, or none that is text.
    """
    file = Path(path).expanduser()
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        there = [each.name for pattern in patterns for each in file.parent.glob(pattern)] if file.parent.is_dir() else []
        near = nearest(file.name, there)
        raise UserError(Problem(path, "no such file", did_you_mean(str(file.parent / name) for name in near))) from None
    except OSError as error:
        raise UserError(Problem(path, f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise UserError(Problem(path, "is not text")) from None


def flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values, in the order of the file."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
