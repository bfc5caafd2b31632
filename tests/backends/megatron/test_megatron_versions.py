"""Which megatron is found, and what is said where the runner's is not there."""

from pathlib import Path

import pytest

from primus_app.backends.base import load_backend
from primus_app.backends.megatron.versions import NEEDED, check_installed, check_path, has_training, installed_version, naming_path
from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.config.schema import BackendConfig


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the search looks at, as a checkout of 0.17.0 has them."""
    for part in ("core", "training"):
        (tmp_path / "megatron" / part).mkdir(parents=True)
    for name in NEEDED:
        (tmp_path / "megatron" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "megatron" / name).touch()
    (tmp_path / "megatron/core/package_info.py").write_text('MAJOR = 0\nMINOR = 17\nPATCH = 0\nPRE_RELEASE = ""\n')
    (tmp_path / "megatron/training/training.py").touch()
    return tmp_path


def backend(**values: object) -> BackendConfig:
    return BackendConfig(name="megatron", **values)


def test_the_version_at_a_path(checkout: Path) -> None:
    assert installed_version(str(checkout)) == "0.17.0"
    assert has_training(str(checkout))
    assert list(check_installed(backend(runner="pretrain", megatron_path=str(checkout)))) == []


def test_a_path_without_megatron(tmp_path: Path) -> None:
    (problem,) = check_path(backend(megatron_path=str(tmp_path)))
    assert problem.where == "backend.megatron_path"
    assert list(check_installed(backend(megatron_path=str(tmp_path)))) == []


def test_an_empty_core_is_no_megatron(tmp_path: Path) -> None:
    """Python would import the installed one in its place."""
    (tmp_path / "megatron/core").mkdir(parents=True)
    (problem,) = check_path(backend(megatron_path=str(tmp_path)))
    assert problem.what == f"{tmp_path} is no whole Megatron: megatron/core/__init__.py is not in it"


def test_broken_code_at_a_path_is_named_with_its_line(checkout: Path) -> None:
    assert list(check_path(backend(megatron_path=str(checkout)))) == []
    file = checkout / "megatron/core/parallel_state.py"
    file.write_text("import os\ndef broken(:\n")
    (problem,) = check_path(backend(megatron_path=str(checkout)))
    assert problem.what == f"{file}, line 2 is no Python that can be read: invalid syntax"
    assert problem.where == "backend.megatron_path"


@pytest.mark.parametrize(("code", "said"), [("import no_such", "No module named 'no_such'"), ("\n\nx = (", "part.py, line 3")])
def test_an_import_that_fails_in_a_rank_names_the_path(code: str, said: str) -> None:
    with pytest.raises(RuntimeError, match="megatron_path=/here cannot be imported") as caught, naming_path("/here"):
        exec(compile(code, "part.py", "exec"), {})
    assert said in str(caught.value)


def test_a_core_without_the_trainer(checkout: Path) -> None:
    (checkout / "megatron/training/training.py").unlink()
    (problem,) = check_installed(backend(runner="pretrain", megatron_path=str(checkout)))
    assert problem.where == "backend.runner"
    assert "backend.megatron_path=DIR" in problem.fix[0]


def test_a_version_that_was_not_tested(checkout: Path) -> None:
    (checkout / "megatron/core/package_info.py").write_text("MAJOR = 0\nMINOR = 12\nPATCH = 1\n")
    (problem,) = check_installed(backend(runner="pretrain", megatron_path=str(checkout)))
    assert "0.12.1" in problem.what


def test_the_other_engine_refuses_both(checkout: Path) -> None:
    config = load_config(Request(("backend.runner=pretrain", f"backend.megatron_path={checkout}")), hardware="cpu")
    found = load_backend("torchtitan").check(config, None)
    assert [problem.where for problem in found] == ["backend.runner", "backend.megatron_path"]


@pytest.mark.parametrize("choice", ["none", "[megatron-cpu-device]"])
def test_the_trainer_is_nothing_without_our_hooks(checkout: Path, choice: str) -> None:
    config = load_config(
        Request(("backend=megatron", "backend.runner=pretrain", f"backend.megatron_path={checkout}", f"backend.patches={choice}")),
        hardware="cpu",
    )
    assert "backend.patches" in [problem.where for problem in load_backend("megatron").check(config, None)]
