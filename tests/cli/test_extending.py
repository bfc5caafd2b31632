"""docs/extending.md: its files are legal, its commands give the lines that it shows."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import primus_app

pytestmark = pytest.mark.slow

ROOT = Path(primus_app.__file__).parents[1]
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
FILES = re.findall(r"`(mine/\S+\.yaml)`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL)
CONSOLE = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = re.findall(r"^\$ primus (.*)\n((?:[^$].*\n)*)", CONSOLE, re.MULTILINE)

Door = Callable[..., Any]


def test_the_page_has_files_and_commands() -> None:
    assert [path for path, _ in FILES] == [
        "mine/model/llama_small.yaml",
        "mine/parallel/tp4_cp2.yaml",
        "mine/hardware/mi210.yaml",
        "mine/experiment/small_lr.yaml",
    ]
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command_gives_what_is_shown(door: Door, tmp_path: Path, command: str, shown: str) -> None:
    for path, text in FILES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    answer = door(*shlex.split(command))
    assert answer.err == ""
    said = [" ".join(line.split()) for line in answer.out.splitlines()]
    for line in shown.splitlines():
        assert any(each.startswith(" ".join(line.split())) for each in said), f"{line!r} is not in\n{answer.out}"


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:primus_app|tests|scripts|conf)/[\w/.]+\.\w+)`", PAGE))))
def test_every_file_that_it_names_exists(path: str) -> None:
    assert (ROOT / path).is_file()
