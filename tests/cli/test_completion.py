"""Tab completion as bash does it, with the script that the program prints."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import primus_app
from primus_app.cli.completion import FLAGS, candidates
from primus_app.config.compose import groups
from primus_app.config.kinds import schema_leaves

ROOT = Path(primus_app.__file__).parents[1]

TAB = """
eval "$(primus -sc install=bash)"
complete -p primus >/dev/null || exit 9
tab() {
    COMP_LINE="$1"; COMP_POINT=${#1}; COMP_WORDS=($1); COMPREPLY=()
    [[ "$1" == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    hydra_bash_completion primus
    echo "$1|${COMPREPLY[*]}"
}
"""


@pytest.fixture
def primus(tmp_path: Path) -> Path:
    """A folder with the console script."""
    script = tmp_path / "bin/primus"
    script.parent.mkdir()
    # As pip writes it: the kernel takes no interpreter whose path has spaces.
    start = ["#!/bin/sh", f"'''exec' {shlex.quote(sys.executable)} \"$0\" \"$@\"", "' '''"]
    script.write_text("\n".join([*start, "import sys", "from primus_app.__main__ import main", "sys.exit(main())", ""]))
    script.chmod(0o755)
    return script.parent


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_bash(primus: Path, tmp_path: Path) -> None:
    lines = ["primus mod", "primus model=ll", "primus plan par", "primus pl", "primus plan training.st", "primus training.recompute=f"]
    script = TAB + "".join(f'tab "{line}"\n' for line in lines)
    environment = {**os.environ, "PATH": f"{primus}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    offered = dict(line.split("|") for line in done.stdout.splitlines())
    llamas = [f"model={name}" for name in groups()["model"] if name.startswith("ll")]
    assert {line: words.split() for line, words in offered.items()} == {
        "primus mod": ["model.", "model="],
        "primus model=ll": llamas,
        "primus plan par": ["parallel.", "parallel="],
        "primus pl": ["plan"],
        "primus plan training.st": ["training.stage=", "training.steps="],
        "primus training.recompute=f": ["training.recompute=full"],
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str, tmp_path: Path, primus: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([primus / "primus", "-sc", f"install={shell}"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "primus" in done.stdout


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
