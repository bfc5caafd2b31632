"""The configuration is found from a checkout, an editable install and a wheel, whatever the working folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from primus_app.config.location import conf_dir

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = ("primus_app", "conf", "setup.cfg", "setup.py", "pyproject.toml", "LICENSE")
WHERE = "from primus_app.config.location import conf_dir; print(conf_dir())"


def run(command: list[str], folder: Path, **environment: str) -> str:
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env={**kept, **environment}, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_composes(python: str, folder: Path, **environment: str) -> None:
    shown = run([python, "-m", "primus_app", "--cfg", "job"], folder, **environment)
    assert "num_hidden_layers" in shown
    assert "global_batch_size" in shown


def new_interpreter(folder: Path) -> Path:
    """A virtual environment that sees the installed packages by path, so that none is installed again; not an editable primus_app."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site_packages = next(folder.glob("lib/python*/site-packages"))
    visible = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site_packages / "outside.pth").write_text("\n".join(visible) + "\n")
    return folder / "bin/python"


def pip_install(python: Path, folder: Path, *what: str) -> None:
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall", "--disable-pip-version-check"]
    run([sys.executable, "-m", "pip", "--python", str(python), "install", *options, *what], folder)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build in: setuptools leaves build/ behind, and takes deleted files from it the next time."""
    copy = tmp_path_factory.mktemp("check out")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", str(folder)]
    run([sys.executable, "-m", "pip", "wheel", str(sources), *options], folder)
    return next(folder.glob("*.whl"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "else where"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == [], "showing the configuration leaves files behind"


def test_beside_the_package_in_a_checkout() -> None:
    assert conf_dir() == ROOT / "conf"


def test_a_conf_inside_the_package_comes_first(tmp_path: Path) -> None:
    for folder in (tmp_path / "primus_app/conf", tmp_path / "conf"):
        folder.mkdir(parents=True)
        (folder / "config.yaml").touch()
    assert conf_dir(tmp_path / "primus_app") == tmp_path / "primus_app/conf"


def test_a_folder_of_that_name_without_a_configuration_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    with pytest.raises(RuntimeError, match=r"without its configuration: neither \S+/primus_app/conf/config.yaml nor \S+/conf/config.yaml"):
        conf_dir(tmp_path / "primus_app")


@pytest.mark.slow
def test_from_a_checkout(elsewhere: Path) -> None:
    assert_composes(sys.executable, elsewhere, PYTHONPATH=str(ROOT))


@pytest.mark.slow
def test_from_an_editable_install(sources: Path, elsewhere: Path, tmp_path: Path) -> None:
    python = new_interpreter(tmp_path / "venv")
    pip_install(python, elsewhere, "--editable", str(sources))
    assert Path(run([str(python), "-c", WHERE], elsewhere).strip()) == sources / "conf"
    assert_composes(str(python), elsewhere)


@pytest.mark.slow
def test_from_a_wheel(wheel: Path, elsewhere: Path, tmp_path: Path) -> None:
    python = new_interpreter(tmp_path / "venv")
    pip_install(python, elsewhere, str(wheel))
    assert Path(run([str(python), "-c", WHERE], elsewhere).strip()).is_relative_to(tmp_path / "venv")
    assert_composes(str(python), elsewhere)
    assert "num_hidden_layers" in run([str(tmp_path / "venv/bin/primus"), "--cfg", "job"], elsewhere)


@pytest.mark.slow
def test_the_wheel_holds_every_file(wheel: Path, sources: Path) -> None:
    """A data file of a new kind under primus_app/ needs a line in setup.cfg, [options.package_data]."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    configuration = {f"primus_app/{path.relative_to(sources)}" for path in (sources / "conf").rglob("*.yaml")}
    package = {str(path.relative_to(sources)) for path in (sources / "primus_app").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert len(configuration) > 20
    assert configuration | package <= packed
