"""Which megatron is there, which versions are known to train right under which runner. Imports no megatron."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from primus_app.config.errors import Problem
from primus_app.config.schema import BackendConfig

Runner = Literal["core", "pretrain"]

TESTED: dict[Runner, tuple[tuple[int, int], ...]] = {"core": ((0, 16), (0, 17)), "pretrain": ((0, 17),)}
"""Major and minor numbers of the versions that the tests have trained with, by backend.runner."""

CHECKOUT = "give the folder that has megatron/ in it: a checkout of Megatron-LM, or what `pip install --target` has made"

NEEDED = (
    *("core/__init__.py", "core/package_info.py", "core/parallel_state.py", "core/distributed/__init__.py", "core/optimizer/__init__.py"),
    *("core/pipeline_parallel/__init__.py", "core/models/gpt/gpt_model.py", "core/transformer/transformer_config.py"),
)
"""Of the files that training begins with those that every version has; without the first Python would import the installed megatron."""

_NUMBER = re.compile(r"^(MAJOR|MINOR|PATCH) *= *(\d+)", re.MULTILINE)

UPSTREAM = "megatron-core 0.16, 0.17"
"""What the patches are for, in words."""


def installed_version(megatron_path: str | None = None) -> str | None:
    """That of megatron.core in ``megatron_path``, or of the one that Python would import; None where there is none."""
    folder = _part("core", megatron_path)
    if folder is None:
        return None
    numbers = dict(_NUMBER.findall(_text(folder / "package_info.py")))
    if len(numbers) == len(("MAJOR", "MINOR", "PATCH")):
        return f"{numbers['MAJOR']}.{numbers['MINOR']}.{numbers['PATCH']}"
    try:
        return version("megatron-core")
    except PackageNotFoundError:
        return None


def tested_version(backend: BackendConfig) -> str:
    """The one that is there, or the newest that the runner was tested with where that is of no such version."""
    found = installed_version(backend.megatron_path)
    major, minor = TESTED[backend.runner][-1]
    return found if found is not None and is_tested(found, backend.runner) else f"{major}.{minor}.0"


def has_training(megatron_path: str | None = None) -> bool:
    """Whether megatron.training is there too, with the ``pretrain`` of Megatron-LM."""
    folder = _part("training", megatron_path)
    return folder is not None and (folder / "training.py").is_file()


def is_tested(found: str, runner: Runner) -> bool:
    """Whether ``found`` is of a series that ``runner`` was tested with."""
    match = re.match(r"(\d+)\.(\d+)", found)
    return match is not None and (int(match[1]), int(match[2])) in TESTED[runner]


def tested_range(runner: Runner) -> str:
    """In words."""
    return ", ".join(f"{major}.{minor}" for major, minor in TESTED[runner])


def check_path(backend: BackendConfig) -> Iterator[Problem]:
    """What is wrong with backend.megatron_path itself, as far as a glance at its first files tells."""
    path = backend.megatron_path
    if path is None:
        return
    where, folder = "backend.megatron_path", Path(path).expanduser() / "megatron"
    if _part("core", path) is None:
        yield Problem(where, f"{path} holds no megatron/core", (CHECKOUT,))
        return
    if missing := [name for name in NEEDED if not (folder / name).is_file()]:
        yield Problem(where, f"{path} is no whole Megatron: megatron/{missing[0]} is not in it", (CHECKOUT,))
    for file in (folder / name for name in NEEDED if name not in missing):
        try:
            compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OSError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            yield Problem(where, f"{file}{line} is no Python that can be read: {getattr(error, 'msg', error)}", (CHECKOUT,))


@contextmanager
def naming_path(path: str | None) -> Iterator[None]:
    """Names backend.megatron_path where what is in there cannot be imported.

    Raises:
        RuntimeError: in the place of the error of such an import.
    """
    try:
        yield
    except (ImportError, SyntaxError) as error:
        if path is None:
            raise
        at = f" ({error.filename}, line {error.lineno})" if isinstance(error, SyntaxError) else ""
        what = f"{type(error).__name__}: {getattr(error, 'msg', error)}{at}"
        raise RuntimeError(f"backend.megatron_path={path} cannot be imported: {what}; {CHECKOUT}") from error


def check_installed(backend: BackendConfig) -> Iterator[Problem]:
    """What of megatron is missing, or of a version that the runner was not tested with."""
    path, runner = backend.megatron_path, backend.runner
    if any(check_path(backend)):
        return
    found = installed_version(path)
    (first, *_), (*_, last) = TESTED["core"], TESTED[runner]
    newest = f"{last[0]}.{last[1]}"
    if found is None:
        # Later ones ask for a newer Python than this program does.
        fix = (f'pip install "megatron-core~={first[0]}.{first[1]}.0"', "backend=torchtitan")
        yield Problem("backend", "megatron-core is not installed", fix)
    elif runner == "pretrain" and not has_training(path):
        where = path or f"the installed megatron-core {found}"
        fix = (
            f"backend.megatron_path=DIR, a checkout of Megatron-LM {newest} or a folder made by "
            f"`pip install --target DIR --no-deps --ignore-requires-python megatron-core=={newest}.0`",
            "backend.runner=core needs no megatron.training",
        )
        yield Problem("backend.runner", f"pretrain needs megatron.training, which {where} does not have", fix)
    elif not is_tested(found, runner):
        what = f"megatron-core {found} {'is at backend.megatron_path' if path else 'is installed'}"
        what += f", and backend.runner={runner} was tested with {tested_range(runner)}"
        yield Problem("backend", what, (f"one of {tested_range(runner)}", *_other_runner(found, runner), "backend=torchtitan"))


def _other_runner(found: str, runner: Runner) -> tuple[str, ...]:
    return tuple(f"backend.runner={other}" for other in TESTED if other != runner and is_tested(found, other) and other == "core")


def _part(name: str, megatron_path: str | None) -> Path | None:
    """The folder of megatron.``name``."""
    if megatron_path is not None:
        folder = Path(megatron_path).expanduser() / "megatron" / name
        return folder if folder.is_dir() else None
    try:
        spec = find_spec(f"megatron.{name}")
    except ModuleNotFoundError:
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
