"""The verb import-primus at the door: what is printed, where, and how it ends."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Door = Callable[..., Any]

TEXT = """
work_group: ${PRIMUS_TEAM_OF_A_TEST:amd}
user_name: ada
exp_name: &exp_name first
workspace: ./out
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3.2_1B.yaml
    overrides:
      train_iters: 20
      lr_warmup_iters: 2
      micro_batch_size: 2
      global_batch_size: 16
      seq_length: 256
      num_layers: 2
      mock_date: true
      enable_primus_turbo: true
      fp8: hybrid
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "my exp.yaml"
    found.write_text(TEXT)
    return found


def test_the_printed_command_is_planned_by_this_program(door: Door, file: Path) -> None:
    answer = door("import-primus", str(file), "--devices", "4")
    assert (answer.code, answer.err) == (0, "")
    words = shlex.split(answer.out.partition("\n\n")[0].replace("\\\n", " "))
    planned = door("plan", *words[words.index("work_group=amd") :], "hardware=mi300x", "--json")
    assert planned.code == 0, planned.err
    plan = json.loads(planned.out)
    assert plan["problems"] == plan["refused_by_backend"] == []
    assert (plan["batch"]["steps"], plan["batch"]["tokens_per_step"], plan["mesh"]["world"]) == (20, 16 * 256, 4)


def test_a_line_for_each_key_with_what_became_of_it(door: Door, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_TEAM_OF_A_TEST", "research")
    out = door("import-primus", str(file)).out
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith(" ")}
    assert "training.steps=20" in lines["train_iters"]
    assert "work_group=research" in lines["work_group"]
    assert "from $PRIMUS_TEAM_OF_A_TEST" in lines["work_group"]
    assert "no such key: Primus passes over it without a word; did you mean mock_data?" in lines["mock_date"]
    assert "differs: only bfloat16 and float32" in lines["fp8"]
    assert "no meaning here: kernels" in lines["enable_primus_turbo"]
    assert "(Primus' default)" in lines["lr"]
    assert f"16 keys of {file}: 13 same, 1 differs, 1 no meaning here, 1 no such key" in out


def test_as_json(door: Door, file: Path) -> None:
    told = json.loads(door("import-primus", "--json", str(file)).out)
    assert "training.steps=20" in told["command"]
    assert told["problems"] == told["refused"] == []
    (odd,) = (key for key in told["keys"] if key["fate"] == "no such key")
    assert odd["key"] == "mock_date"


def test_a_command_that_is_refused_says_so(door: Door, file: Path) -> None:
    file.write_text(TEXT.replace("global_batch_size: 16", "global_batch_size: 15"))
    answer = door("import-primus", str(file))
    assert answer.code == 2
    assert "refused as it stands" in answer.out
    assert "error: training.micro_batch_size: global_batch_size 15" in answer.err


def test_another_engine_is_offered_where_it_trains_it(door: Door, file: Path) -> None:
    """Megatron ranks groups of experts by their two best, which DeepSeek-V3 does with 8 of 256 experts from 4 of 8 groups alone."""
    experts = "      moe_router_topk: 6\n      max_position_embeddings: 4096\n"
    file.write_text(
        TEXT.replace("llama3.2_1B", "deepseek_v3").replace("num_layers: 2\n", 'num_layers: 4\n      moe_layer_freq: "[0]*3+[1]*1"\n')
        + experts
    )
    answer = door("import-primus", str(file))
    assert answer.code == 2
    assert "backend=torchtitan trains it" in answer.err


@pytest.mark.parametrize(
    ("argv", "what", "fix"),
    [
        ([], "the following arguments are required: FILE.yaml", "usage: import-primus FILE.yaml"),
        (["a.yaml"], "a.yaml: no such file", ""),
        (["--jsn", "a.yaml"], "--jsn: no such flag of import-primus", "did you mean --json?"),
        (["a.yaml", "--devices", "0"], "--devices: 0 is not allowed", ""),
        (["a.yaml", "--devices", "acht"], "--devices: acht is not allowed; it takes a whole number above 0", "--devices 64"),
    ],
)
def test_refused(door: Door, argv: list[str], what: str, fix: str) -> None:
    answer = door("import-primus", *argv)
    assert answer.code == 2
    assert len(answer.problems()) == 1
    assert what in answer.err
    assert fix in answer.err


def test_the_nearest_file_is_offered(door: Door, file: Path) -> None:
    assert f"did you mean {file}?" in door("import-primus", str(file.parent / "my epx.yaml")).err


def test_help_and_completion(door: Door, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_app.cli.completion import candidates

    assert "import-primus tell an experiment of AMD's Primus as a command" in door("import-primus", "--help").out
    monkeypatch.chdir(file.parent)
    assert candidates("primus import-primus --") == ["--devices", "--json"]
    assert candidates("primus import-primus my") == ["my exp.yaml"]
    assert candidates("primus imp") == ["import-primus", "import-titan"]
