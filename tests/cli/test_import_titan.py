"""The verb import-titan at the door: what is printed, where, and how it ends."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Door = Callable[..., Any]

TEXT = """
[model]
name = "llama3"
flavor = "debugmodel"
[training]
steps = 20
seq_len = 256
local_batch_size = 4
mixed_precision_param = "float32"
[compile]
components = ["model"]
[metrics]
save_tb_folder = "tb"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "debug model.toml"
    found.write_text(TEXT)
    return found


def test_the_printed_command_is_planned_by_this_program(door: Door, file: Path) -> None:
    answer = door("import-titan", str(file), "--devices", "2")
    assert (answer.code, answer.err) == (0, "")
    command = answer.out.partition("\n\n")[0].replace("\\\n", " ")
    words = shlex.split(command)
    assert words[: words.index("model=llama_tiny")] in (["primus"], ["python", "-m", "primus_app"])
    planned = door("plan", *words[words.index("model=llama_tiny") :], "--json")
    assert planned.code == 0, planned.err
    plan = json.loads(planned.out)
    assert plan["problems"] == plan["refused_by_backend"] == []
    assert plan["batch"]["global_batch_size"] == 4 * 2
    assert (plan["batch"]["steps"], plan["batch"]["tokens_per_step"], plan["mesh"]["world"]) == (20, 8 * 256, 2)


def test_a_line_for_each_key_with_what_became_of_it(door: Door, file: Path) -> None:
    out = door("import-titan", str(file), "--devices", "1").out
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith(" ") and "." in line}
    assert "training.micro_batch_size=4" in lines["training.local_batch_size"]
    assert "training.steps=20" in lines["training.steps"]
    assert "[model]" in lines["compile.components"]
    assert "no meaning here: has no effect: nothing is compiled" in lines["compile.components"]
    assert "(TorchTitan's default)" in lines["optimizer.lr"]
    assert "model=llama_tiny and" in lines["model.flavor"]
    assert f"8 keys of {file}: 6 same, 2 no meaning here" in out


def test_as_json(door: Door, file: Path) -> None:
    answer = door("import-titan", "--json", str(file), "--devices=8")
    told = json.loads(answer.out)
    assert answer.code == 0
    assert "training.global_batch_size=32" in told["command"]
    (steps,) = (key for key in told["keys"] if key["key"] == "training.steps")
    assert steps == {"key": "training.steps", "value": 20, "became": ["training.steps=20"], "fate": "same", "note": "", "default": False}
    assert told["problems"] == []


def test_without_the_devices_the_table_is_shown_and_the_command_is_not(door: Door, file: Path) -> None:
    answer = door("import-titan", str(file))
    assert answer.code == 2
    assert "primus" not in answer.out.partition("training.steps")[0].replace(str(file), "")
    assert "training.steps=20" in answer.out
    assert "--devices <how many there are in all>" in answer.err
    assert json.loads(door("import-titan", str(file), "--json").out)["command"] is None


@pytest.mark.parametrize(
    ("argv", "what", "fix"),
    [
        ([], "the following arguments are required: FILE.toml", "usage: import-titan FILE.toml"),
        (["a.toml"], "a.toml: no such file", ""),
        (["."], ".: cannot be read: Is a directory", ""),
        (["--jsn", "a.toml"], "--jsn: no such flag of import-titan", "did you mean --json?"),
        (["a.toml", "--devices", "many"], "many is not allowed; it takes a whole number above 0", "for instance --devices 64"),
        (["a.toml", "--devices", "0"], "--devices: 0 is not allowed", ""),
        (["a.toml", "b.toml"], "unrecognized arguments: b.toml", "usage"),
        (["a.toml", "training.steps=5"], "unrecognized arguments: training.steps=5", "usage"),
    ],
)
def test_refused(door: Door, argv: list[str], what: str, fix: str) -> None:
    answer = door("import-titan", *argv)
    assert answer.code == 2
    assert len(answer.problems()) == 1
    assert what in answer.err
    assert fix in answer.err


def test_the_nearest_file_is_offered(door: Door, file: Path) -> None:
    answer = door("import-titan", str(file.parent / "debug_modle.toml"))
    assert answer.code == 2
    assert f"did you mean {file}?" in answer.err


def test_broken_files_are_told_in_one_message(door: Door, tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "config.py").write_text("def llama3(): ...\n")
    assert "binary.toml: is not text" in door("import-titan", "binary.toml").err
    assert "TorchTitan 0.3's configurations are Python functions" in door("import-titan", "config.py").err


def test_help_and_completion(door: Door, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_app.cli.completion import candidates

    page = door("import-titan", "--help")
    assert (page.code, page.err) == (0, "")
    assert "import-titan  tell a TOML job file of TorchTitan as a command" in page.out
    monkeypatch.chdir(file.parent)
    assert candidates("primus import-titan --") == ["--devices", "--json"]
    assert candidates("primus import-titan deb") == ["debug model.toml"]
    assert "import-titan" in candidates("primus imp")
