"""scripts/setup_environment.py on small checkouts whose packages are made here: with and without a torch of the interpreter's own."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SETUP_CFG = """
[options]
install_requires =
    tiny
    torch>=2.11
[options.extras_require]
triton =
    triton
test =
    tiny_tests
"""
# A build backend of a few lines stands in for setuptools, which would have to come from the network.
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = """
import pathlib, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "primus_app-0-py3-none-any.whl"
    info = "primus_app-0.dist-info"
    files = {
        "primus_app.pth": str(pathlib.Path.cwd()),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: primus_app\\nVersion: 0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = "".join(f"{name},,\\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)
    return name
"""

WHEELS = [("torch", "2.13.0"), ("torch", "2.14.0"), ("triton", "3.7.1"), ("tiny", "1.0"), ("tiny", "2.0"), ("tiny_tests", "1.0")]

pytestmark = pytest.mark.slow


def package(name: str, version: str) -> dict[str, str]:
    """The files of an importable, installed package."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return {**files, f"{info}/RECORD": "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])}


def put(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels that pip may take, in place of a network."""
    folder = tmp_path_factory.mktemp("shelf")
    for name, version in (
        ("torch", "2.13.0"),
        ("torch", "2.14.0"),
        ("triton", "3.7.1"),
        ("tiny", "1.0"),
        ("tiny", "2.0"),
        ("tiny_tests", "1.0"),
    ):
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for path, text in package(name, version).items():
                wheel.writestr(path, text)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "a check out"
    scripts = folder / "scripts"
    scripts.mkdir(parents=True)
    for name in ("setup_environment.py", "environment_plan.py"):
        shutil.copy(ROOT / "scripts" / name, scripts / name)
    constraints = "torch==2.13.0\ntriton==3.7.1\ntiny==1.0\n"
    put(folder, {"setup.cfg": SETUP_CFG, "pyproject.toml": PYPROJECT, "constraints.txt": constraints, "backend.py": BACKEND})
    return folder


@pytest.fixture
def environment(shelf: Path, tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))}
    user_packages = tmp_path / "user packages"
    return {**kept, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf), "PIP_CONFIG_FILE": os.devnull, "PYTHONUSERBASE": str(user_packages)}


def base_python() -> str:
    return str(getattr(sys, "_base_executable", sys.executable))


def start(python: str, checkout: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    command = [python, str(checkout / "scripts/setup_environment.py"), *arguments]
    return subprocess.Popen(command, cwd="/", env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def set_up(python: str, checkout: Path, environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    """The exit code and what was said; nothing goes to standard output, which is the main job's."""
    process = start(python, checkout, environment, *arguments)
    output, said = process.communicate(timeout=240)
    assert output == ""
    return process.returncode, said


def installed(checkout: Path, environment: dict[str, str]) -> dict[str, str]:
    """Versions that .venv imports; a package that is not there is left out."""
    code = (
        "import importlib, json\nfound = {}\n"
        "for name in ('torch', 'triton', 'tiny', 'tiny_tests'):\n"
        "    try: found[name] = importlib.import_module(name).__version__\n"
        "    except ImportError: pass\n"
        "print(json.dumps(found))"
    )
    python = str(checkout / ".venv/bin/python")
    shown = subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd="/").stdout
    answer: dict[str, str] = json.loads(shown)
    return answer


def own_packages(checkout: Path) -> set[str]:
    return {
        path.name for path in (checkout / ".venv").glob("lib/python*/site-packages/t*") if path.is_dir() and "dist-info" not in path.name
    }


def test_without_a_torch_the_tested_one_is_installed_once(checkout: Path, environment: dict[str, str]) -> None:
    both = [start(base_python(), checkout, environment) for _ in range(2)]
    said = [process.communicate(timeout=240)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("creating .venv" in text for text in said) == 1
    assert installed(checkout, environment) == {"torch": "2.13.0", "triton": "3.7.1", "tiny": "1.0"}
    assert set_up(base_python(), checkout, environment) == (0, "")
    assert set_up(str(checkout / ".venv/bin/python"), checkout, environment) == (0, "")

    (checkout / "constraints.txt").write_text("torch==2.13.0\ntriton==3.7.1\ntiny==2.0\n")
    code, text = set_up(base_python(), checkout, environment, "--test")
    assert (code, "updating .venv" in text) == (0, True)
    assert installed(checkout, environment) == {"torch": "2.13.0", "triton": "3.7.1", "tiny": "2.0", "tiny_tests": "1.0"}
    assert set_up(base_python(), checkout, environment) == (0, ""), "the tests' environment serves the main job too"

    # Cut off while installing: the mark of a finished set-up is gone, a package has its metadata but not its last file and half its code.
    site_packages = next((checkout / ".venv").glob("lib/python*/site-packages"))
    (checkout / ".venv/setup.json").unlink()
    (site_packages / "tiny-2.0.dist-info/RECORD").unlink()
    (site_packages / "tiny/__init__.py").write_text("")
    code, text = set_up(base_python(), checkout, environment)
    assert (code, "was not completed" in text) == (0, True)
    assert installed(checkout, environment)["tiny"] == "2.0"

    moved = checkout.with_name("moved")
    checkout.rename(moved)
    code, text = set_up(base_python(), moved, environment)
    assert (code, "the checkout was moved" in text) == (0, True)
    assert set_up(base_python(), moved, environment) == (0, "")


def test_the_torch_of_a_virtual_environment_is_used_as_it_is(checkout: Path, environment: dict[str, str], tmp_path: Path) -> None:
    subprocess.run([base_python(), "-m", "venv", "--without-pip", str(tmp_path / "container")], check=True)
    site_packages = next((tmp_path / "container").glob("lib/python*/site-packages"))
    put(site_packages, package("torch", "2.11.0+rocm7.2") | package("triton", "3.5.1+rocm7.2"))
    (site_packages / "triton-3.5.1+rocm7.2.dist-info").rename(site_packages / "pytorch_triton_rocm-3.5.1.dist-info")
    python = str(tmp_path / "container/bin/python")
    code, text = set_up(python, checkout, environment)
    assert code == 0, text
    assert f"torch 2.11.0+rocm7.2 of {python} is used as it is" in text
    assert installed(checkout, environment) == {"torch": "2.11.0+rocm7.2", "triton": "3.5.1+rocm7.2", "tiny": "1.0"}
    assert own_packages(checkout) == {"tiny"}
    assert set_up(python, checkout, environment) == (0, "")
    assert set_up(str(checkout / ".venv/bin/python"), checkout, environment) == (0, "")

    put(site_packages, package("torch", "2.12.0+rocm7.3"))
    shutil.rmtree(site_packages / "torch-2.11.0+rocm7.2.dist-info")
    code, text = set_up(python, checkout, environment)
    assert (code, "torch 2.12.0+rocm7.3" in text) == (0, True), text
    assert own_packages(checkout) == {"tiny"}


def test_the_torch_of_the_system_is_used_as_it_is(checkout: Path, environment: dict[str, str]) -> None:
    code, text = set_up(base_python(), checkout, environment)
    assert code == 0, text
    show = [base_python(), "-c", "import site; print(site.getusersitepackages())"]
    users = Path(subprocess.run(show, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    put(users, package("torch", "2.11.0+rocm7.2"))
    code, text = set_up(base_python(), checkout, environment)
    assert code == 0, text
    assert "now has a torch of its own" in text
    assert installed(checkout, environment) == {"torch": "2.11.0+rocm7.2", "triton": "3.7.1", "tiny": "1.0"}
    assert own_packages(checkout) == {"tiny", "triton"}


def test_a_torch_that_is_too_old_is_refused_before_anything_is_made(checkout: Path, environment: dict[str, str], tmp_path: Path) -> None:
    subprocess.run([base_python(), "-m", "venv", "--without-pip", str(tmp_path / "old")], check=True)
    put(next((tmp_path / "old").glob("lib/python*/site-packages")), package("torch", "2.7.1+rocm6.3"))
    code, text = set_up(str(tmp_path / "old/bin/python"), checkout, environment)
    assert (code, "needs 2.11 or newer" in text) == (3, True)
    assert not (checkout / ".venv").exists()


def test_what_cannot_be_installed_ends_in_one_message_with_the_log(checkout: Path, environment: dict[str, str]) -> None:
    (checkout / "setup.cfg").write_text(SETUP_CFG.replace("    tiny\n", "    tiny\n    nowhere_to_be_had\n"))
    code, text = set_up(base_python(), checkout, environment)
    assert code == 3
    assert "Traceback" not in text
    assert "No matching distribution found for nowhere_to_be_had" in text
    assert str(checkout / ".venv/install.log") in text


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.18 && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts/quickstart"], env={**os.environ, "PYTHON": str(old)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.startswith(f"set-up: primus_app needs python 3.11 or newer; {old} is Python 3.9.18.\n")
