"""What scripts/environment_plan.py asks pip for, from the interpreter found and this checkout's own files."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()


def load_plan_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment_plan", ROOT / "scripts" / "environment_plan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["environment_plan"] = module
    spec.loader.exec_module(module)
    return module


environment_plan = load_plan_module()


def facts(**changes: Any) -> Any:
    return environment_plan.Facts(**{"python": "/usr/bin/python3.12", "version": "3.12.3", "home": "/usr/bin", **changes})


def plan(found: Any, *extras: str) -> Any:
    texts = [(ROOT / name).read_text() for name in ("setup.cfg", "pyproject.toml")]
    return environment_plan.plan_install(found, *texts, CONSTRAINTS, extras)


def by_name(lines: tuple[str, ...]) -> dict[str, str]:
    return {canonicalize_name(Requirement(line).name): line for line in lines}


def container(version: str, **changes: Any) -> Any:
    return facts(torch=environment_plan.Torch(version, "/opt/rocm-env/torch/__init__.py"), **changes)


def test_a_plain_interpreter_gets_the_tested_versions() -> None:
    install = plan(facts())
    assert not install.borrows
    assert by_name(install.requirements)["triton"] == 'triton; platform_system == "Linux"'
    pins = by_name(install.constraints)
    assert pins["torch"] == "torch==2.13.0"
    assert pins["numpy"].startswith("numpy==")
    assert "pytest" not in by_name(install.requirements)


def test_the_tests_extra_is_added_on_request() -> None:
    assert {"pytest", "ruff", "mypy", "import-linter"} <= by_name(plan(facts(), "test").requirements).keys()


def test_a_container_keeps_its_torch_triton_and_numpy() -> None:
    install = plan(container("2.11.0+rocm7.2", has_triton=True))
    assert install.system_site
    assert "triton" not in by_name(install.requirements)
    pins = by_name(install.constraints)
    assert pins["torch"] == "torch==2.11.0+rocm7.2"
    assert not {"triton", "numpy", "setuptools"} & pins.keys()
    assert pins["torchtitan"] == "torchtitan==0.3.0"


def test_a_container_whose_torch_came_without_triton_gets_one() -> None:
    assert "triton" in by_name(plan(container("2.11.0+cpu")).requirements)


def test_a_container_that_is_a_virtual_environment_is_shown_by_its_folders() -> None:
    folder = "/opt/venv/lib/python3.12/site-packages"
    install = plan(container("2.12.0a0+gitdeadbee", has_triton=True, site_folders=(folder,)))
    assert (install.system_site, install.site_folders, install.borrows) == (False, (folder,), True)


def test_a_virtual_environment_without_torch_is_not_shown() -> None:
    assert not plan(facts(site_folders=("/home/user/venv/lib/python3.12/site-packages",))).borrows


def test_a_torch_that_is_too_old_is_named_and_left_alone() -> None:
    with pytest.raises(environment_plan.UnfitError) as refusal:
        plan(container("2.7.1+rocm6.3", has_triton=True))
    assert str(refusal.value).startswith("/opt/rocm-env/torch/__init__.py is torch 2.7.1+rocm6.3; primus_app needs 2.11 or newer")


def test_the_digest_sees_each_thing_that_matters() -> None:
    base, install = facts(), plan(facts())
    variants = [
        (base, install, ["a"], "/x"),
        (base, install, ["b"], "/x"),
        (base, install, ["a"], "/y"),
        (facts(version="3.12.4"), install, ["a"], "/x"),
        (base, plan(facts(), "test"), ["a"], "/x"),
        (container("2.11.0+rocm7.2"), install, ["a"], "/x"),
    ]
    assert len({environment_plan.digest(*variant) for variant in variants}) == len(variants)
