"""Tab completion as bash does it, with the script that the program prints."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import primus_app
from primus_app.cli.completion import FLAGS, candidates
from primus_app.config.compose import groups
from primus_app.config.kinds import schema_leaves

ROOT = Path(primus_app.__file__).parents[1]

PROGRAM = """#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys
from primus_app.__main__ import main
sys.exit(main())
"""
"""As pip writes it where the path of python has spaces, which a first line #!… may not have."""

TAB = """
eval "$(primus -sc install=bash)"
complete -p primus >/dev/null || exit 9
tab() {
    COMP_LINE="$2 $3"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
    _primus_complete "$2" "${3##*[ =]}"
    echo "$1|${COMPREPLY[*]}"
}
"""
"""tab KEY PROGRAM REST: bash gives the function the program as typed and what stands after the last space or =."""


@pytest.fixture
def primus(tmp_path: Path) -> Path:
    """A folder with the console script; its name has spaces."""
    script = tmp_path / "my programs/bin/primus"
    script.parent.mkdir(parents=True)
    script.write_text(PROGRAM.format(python=shlex.quote(sys.executable)))
    script.chmod(0o755)
    return script.parent


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.slow
def test_in_bash(primus: Path, tmp_path: Path) -> None:
    llamas = [name for name in groups()["model"] if name.startswith("ll")]
    expected = {
        "mod": ["model.", "model="],
        "model=ll": llamas,
        "plan par": ["parallel.", "parallel="],
        "pl": ["plan", "plan."],
        "plan training.st": ["training.stage=", "training.steps="],
        "training.recompute=f": ["full"],
    }
    by_path = str(primus / "primus").replace(" ", "\\ ")
    lines = [*expected.items(), ("by its path", ["plan", "plan."])]
    script = TAB + "".join(f"tab '{line}' primus '{line}'\n" for line in expected) + f"tab 'by its path' {shlex.quote(by_path)} pl\n"
    environment = {**os.environ, "PATH": f"{primus}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    offered = [line.split("|") for line in done.stdout.splitlines()]
    assert [(line, words.split()) for line, words in offered] == lines


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str, tmp_path: Path, primus: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([primus / "primus", "-sc", f"install={shell}"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "primus" in done.stdout
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", "-c", done.stdout], check=False).returncode == 0


def test_an_unknown_shell(door: Callable[..., Any]) -> None:
    answer = door("-sc", "install=bsh")
    assert (answer.code, answer.out) == (2, "")
    assert "install=bsh: no such shell or action\n  one of install=bash" in answer.err


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("primus --mul", ["--multirun"]),
        ("primus plan --js", ["--json"]),
        ("primus --js", []),
        ("primus --cfg j", ["job"]),
        ("primus plan --json par", ["parallel.", "parallel="]),
        ("primus -m precision=", ["precision=bf16", "precision=fp32"]),
        ("primus -m precision=fp32,b", ["precision=fp32,bf16"]),
        ("primus training.deterministic=", ["training.deterministic=false", "training.deterministic=true"]),
        ("primus training.seq_len=", ["training.seq_len=128"]),
        ("primus training.tokens=", ["training.tokens=null"]),
        ("primus optimizer.schedule=c", ["optimizer.schedule=constant", "optimizer.schedule=cosine"]),
        ("primus model.moe.num_experts", ["model.moe.num_experts=", "model.moe.num_experts_per_tok="]),
        ("primus nothing=", []),
        ("primus zzz", []),
        ("primus hug", []),
    ],
)
def test_candidates(line: str, offered: list[str]) -> None:
    assert candidates(line) == offered


def test_the_first_word_may_be_a_verb_and_later_ones_not() -> None:
    assert {"plan", "train", "model=", "training."} <= set(candidates("primus "))
    assert not {"plan", "train"} & set(candidates("primus plan "))


def test_files_and_the_users_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/own.yaml").touch()
    assert candidates(f"primus model.path={tmp_path}/m") == [f"model.path={tmp_path}/model/"]
    assert candidates(f"primus --config-dir {tmp_path}/m") == [f"{tmp_path}/model/"]
    assert candidates(f"primus --config-dir {tmp_path} model=ow") == ["model=own"]


def test_every_key_is_reached_by_tabs() -> None:
    """Walk the tree that completion offers."""
    found, todo = set(), [""]
    while todo:
        for word in candidates(f"primus plan {todo.pop()}"):
            (todo.append if word.endswith(".") else found.add)(word)
    assert found == {f"{key}=" for key in (*schema_leaves(), *groups())}


def test_flags_are_hydras() -> None:
    from hydra._internal.utils import get_args_parser

    known = {option for action in get_args_parser()._actions for option in action.option_strings}
    assert set(FLAGS) <= known
