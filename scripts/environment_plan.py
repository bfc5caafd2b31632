"""What .venv has to hold: from the interpreter found and the checkout's files to pip's arguments. Functions without side effects."""

import configparser
import hashlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CONTAINERS_OWN = ("torch", "triton", "numpy", "setuptools")
"""Not held to our versions where the interpreter brings torch: that torch is built against, or asks for, others of these."""


class UnfitError(Exception):
    """The machine cannot hold the environment; the text is the one message shown."""


@dataclass(frozen=True)
class Torch:
    """A torch that the interpreter can already import."""

    version: str
    file: str


@dataclass(frozen=True)
class Facts:
    """The interpreter. ``site_folders`` are its package folders if it is itself a virtual environment, else none."""

    python: str
    version: str
    home: str
    torch: Torch | None = None
    has_triton: bool = False
    site_folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Install:
    """What pip is asked for, and how .venv shows the interpreter's own packages: by venv's option or by a list of folders."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    system_site: bool = False
    site_folders: tuple[str, ...] = ()

    @property
    def borrows(self) -> bool:
        return self.system_site or bool(self.site_folders)


def plan_install(facts: Facts, setup_cfg: str, pyproject: str, constraints: str, extras: Iterable[str]) -> Install:
    """From what was found and what the checkout asks for to pip's arguments. Raises UnfitError for a torch that is too old."""
    options = configparser.ConfigParser()
    options.read_string(setup_cfg)
    wanted = _lines(options["options"]["install_requires"])
    triton = [] if facts.torch and facts.has_triton else ["triton"]
    for extra in sorted({*extras, *triton}):
        wanted += _lines(options["options.extras_require"][extra])
    wanted += tomllib.loads(pyproject)["build-system"]["requires"]
    pins = _lines(constraints)
    if facts.torch is None:
        return Install(tuple(wanted), tuple(pins))
    _check_age(facts.torch, wanted)
    pins = [pin for pin in pins if _name(pin) not in CONTAINERS_OWN]
    return Install(tuple(wanted), (*pins, f"torch=={facts.torch.version}"), not facts.site_folders, facts.site_folders)


def digest(facts: Facts, install: Install, sources: Iterable[str], root: str) -> str:
    """Changes whenever the environment has to be looked at again."""
    return hashlib.sha256("\0".join([repr(facts), repr(install), root, *sources]).encode()).hexdigest()


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found.group()).lower() if found else ""


def _check_age(torch: Torch, wanted: Sequence[str]) -> None:
    least = next((line.partition(">=")[2] for line in wanted if _name(line) == "torch" and ">=" in line), "0")
    if _numbers(torch.version) < _numbers(least):
        raise UnfitError(
            f"{torch.file} is torch {torch.version}; primus_app needs {least} or newer, and does not replace it.\n"
            "  Use a container or environment with a newer torch, or name a python without one: PYTHON=/path/to/python3"
        )


def _numbers(version: str) -> tuple[int, int]:
    major, minor = [*re.findall(r"\d+", version), "0", "0"][:2]
    return int(major), int(minor)
