"""setup.cfg declares what primus_app imports, and constraints.txt pins it to a version that setup.cfg allows."""

import ast
import configparser
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def declared(*extras: str) -> dict[str, Requirement]:
    options = configparser.ConfigParser()
    options.read(ROOT / "setup.cfg")
    texts = [options["options"]["install_requires"], *(options["options.extras_require"][extra] for extra in extras)]
    lines = [line for text in texts for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def pinned() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def imported_modules() -> dict[str, Path]:
    """Top-level names of every import in primus_app, with a file that has it."""
    found: dict[str, Path] = {}
    for file in (ROOT / "primus_app").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            found.update({name.partition(".")[0]: file for name in names})
    return found


def test_every_import_is_declared() -> None:
    owners = packages_distributions()
    known = declared("triton").keys()
    outside = imported_modules().keys() - sys.stdlib_module_names - {"primus_app"}
    assert len(outside) > 5
    undeclared = {name for name in outside if not known & {canonicalize_name(owner) for owner in owners.get(name, ["?"])}}
    assert undeclared == set(), {name: imported_modules()[name] for name in undeclared}


@pytest.mark.parametrize("name", sorted(declared("triton", "test")))
def test_every_dependency_is_pinned_within_what_is_allowed(name: str) -> None:
    assert declared("triton", "test")[name].specifier.contains(pinned()[name])
