"""The surroundings of a run, without its secrets."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus_app.run.environment import chosen_variables, describe_environment, installed_packages
from primus_app.run.git import describe_checkout
from primus_app.run.redact import REDACTED, redact_argument, redact_text


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    _git(folder, "init", "-q")
    (folder / "a.py").write_text("one = 1\n")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "first")
    return folder


def test_versions_are_those_of_importlib(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = installed_packages()
    for name in ("pydantic", "hydra-core", "pytest", "pyyaml"):
        assert packages[name] == importlib.metadata.version(name)


def test_all_of_it_is_json_with_devices_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = json.loads(
        json.dumps(describe_environment([{"name": "cpu"}], ["primus", "training.tokens=10", "hub.token=abc"]), allow_nan=False)
    )
    assert found["devices"] == [{"name": "cpu"}]
    assert found["command"] == ["primus", "training.tokens=10", f"hub.token={REDACTED}"]
    assert found["working_directory"] == str(tmp_path)
    assert found["host"]["num_cpus_allowed"] == len(os.sched_getaffinity(0))
    assert found["python"]["executable"] == sys.executable
    assert found["host"]["memory_gib"] > 0


def test_secrets_in_variables_are_redacted() -> None:
    given = {
        "HF_TOKEN": "hf_secret",
        "HF_HUB_CACHE": "/cache",
        "SLURM_JWT": "eyJ0",
        "PRIMUS_API_KEY": "k",
        "NCCL_DEBUG": "INFO",
        "HF_ENDPOINT": "https://ada:pw@mirror.example.org/hub",
        "AWS_SECRET_ACCESS_KEY": "never even chosen",
        "EDITOR": "vi",
        "HSA_OVERRIDE_GFX_VERSION": "9.4.2",
        "PATH": "/bin",
    }
    assert chosen_variables(given) == {
        "HF_TOKEN": REDACTED,
        "HF_HUB_CACHE": "/cache",
        "SLURM_JWT": REDACTED,
        "PRIMUS_API_KEY": REDACTED,
        "NCCL_DEBUG": "INFO",
        "HF_ENDPOINT": f"https://{REDACTED}@mirror.example.org/hub",
        "HSA_OVERRIDE_GFX_VERSION": "9.4.2",
        "PATH": "/bin",
    }


@pytest.mark.parametrize(
    ("argument", "kept"),
    [
        ("data.tokenizer=byte", "data.tokenizer=byte"),
        ("training.tokens=1000", "training.tokens=1000"),
        ("+hub.api_key=abc", f"+hub.api_key={REDACTED}"),
        ("backend.native.wandb_token=abc", f"backend.native.wandb_token={REDACTED}"),
        ("data.path=s3://id:pw@host/x", f"data.path=s3://{REDACTED}@host/x"),
        ("optimizer.lr=1e-3", "optimizer.lr=1e-3"),
    ],
)
def test_secrets_in_arguments_are_redacted(argument: str, kept: str) -> None:
    assert redact_argument(argument) == kept


def test_known_tokens_are_found_in_text_and_words_are_left() -> None:
    assert redact_text("use " + "hf_" + "a" * 30 + " here") == f"use {REDACTED} here"
    for text in ("ssh://git@example.org/x", "mail ada@example.org", "hf_hub_download", "http://example.org/a@b"):
        assert redact_text(text) == text


def test_a_clean_checkout(checkout: Path) -> None:
    assert describe_checkout(checkout) == {
        "root": str(checkout),
        "commit": _git(checkout, "rev-parse", "HEAD"),
        "dirty": False,
        "changed": [],
    }


def test_a_changed_checkout_has_its_diff_which_applies(checkout: Path) -> None:
    (checkout / "a.py").write_text("one = 1\nurl = 'https://ada:pw@example.org'\n")
    (checkout / "new.py").write_text("")
    found = describe_checkout(checkout)
    assert found is not None
    assert found["dirty"]
    assert found["changed"] == [" M a.py", "?? new.py"]
    assert "pw" not in found["diff"]
    _git(checkout, "checkout", "-q", "a.py")
    subprocess.run(["git", "-C", str(checkout), "apply"], input=found["diff"], text=True, check=True)
    assert (checkout / "a.py").read_text() == f"one = 1\nurl = 'https://{REDACTED}@example.org'\n"


def test_a_package_inside_somebodys_repository_is_not_its_checkout(checkout: Path) -> None:
    inside = checkout / "lib"
    inside.mkdir()
    assert describe_checkout(inside, exactly=True) is None
    assert describe_checkout(inside, with_diff=False)["root"] == str(checkout)  # type: ignore[index]


def test_without_git_without_repository_without_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_checkout(tmp_path) is None
    _git(tmp_path, "init", "-q")
    found = describe_checkout(tmp_path)
    assert found is not None
    assert "HEAD" in found["error"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_checkout(tmp_path) is None


def test_nothing_here_imports_torch() -> None:
    script = "import sys, primus_app.run.open, primus_app.run.environment as e; e.describe_environment(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
