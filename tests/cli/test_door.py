"""The door from outside: exit codes, one message, Hydra's flags, the sweep's refusals, and how little is imported."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import primus_app
from primus_app.config.compose import Request
from primus_app.config.load import load_config

ROOT = Path(primus_app.__file__).parents[1]
SEVEN = (
    *("modle=llama_tiny", "model=lama3_8b", "parallel.tpp=8", "training.seq_len=abc"),
    *("+training.foo=1", "mock_date=true", "hydra.ouput_subdir=x"),
)
HEADS = ("model=lama3_8b:", "hydra.ouput_subdir=x:", "modle=llama_tiny:", "parallel.tpp=8:", "+training.foo=1:", "mock_date=true:")
ENGINES = ("torch", "torchtitan", "megatron", "transformers", "numpy")

Door = Callable[..., Any]


def python(*argv: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *argv], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("before", [(), ("plan",), ("--multirun",), ("--cfg", "job")])
def test_seven_mistakes_at_once(door: Door, tmp_path: Path, before: tuple[str, ...]) -> None:
    answer = door(*before, *SEVEN)
    assert answer.code == 2
    assert answer.out == ""
    heads = [problem[0] for problem in answer.problems()]
    assert all(any(head.startswith(start) for head in heads) for start in HEADS)
    assert "did you mean llama3_8b" not in answer.err
    assert "did you mean model=llama3_8b or model=llama3_1_8b?" in answer.err
    if before != ("--cfg", "job"):  # which shows values without judging them
        assert len(heads) == 7
        assert heads[-1] == "training.seq_len: 'abc' is not allowed; it takes a whole number above 0"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("typed", SEVEN)
def test_each_mistake_under_multirun(door: Door, tmp_path: Path, typed: str) -> None:
    answer = door("--multirun", typed, "optimizer.lr=1e-3,3e-3")
    assert answer.code == 2
    assert len(answer.problems()) == 1
    assert typed.lstrip("+").partition("=")[0] in answer.problems()[0][0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "what"),
    [
        ("training.seq_len=32,abc,64", "training.seq_len: 'abc' is not allowed"),
        ("model=llama_tiny,lama3_8b,qwen3_tiny", "conf/model/ has no 'lama3_8b'"),
        ("parallel.tpp=8,4", "did you mean parallel.tp=8,4"),
        ("optimizer.lr=1e-3,-1,1e-4", "optimizer.lr: -1 is not allowed"),
        ("model=glob(qwen3_t*)", "write model=qwen3_tiny"),
        ("model.hidden_size=interval(1,3)", "cannot be listed value by value"),
        ("hydra.run.dir=/x", "has no effect"),
    ],
)
def test_one_bad_value_stops_a_sweep_before_the_first_job(door: Door, tmp_path: Path, typed: str, what: str) -> None:
    answer = door("-m", typed)
    assert answer.code == 2
    assert what in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_sweeps_refusal_says_which_job_and_a_wrong_request_outweighs_a_missing_device(door: Door, tmp_path: Path) -> None:
    """tp=2 lacks a device here (code 3); 3 divides none of the model's numbers (code 2)."""
    answer = door("-m", "parallel.tp=2,3", "optimizer.lr=1e-3,3e-3", "hardware=cpu")
    assert answer.code == 2
    assert "in job 0: parallel.tp=2 optimizer.lr=0.001, and 1 more of the sweep's 4" in answer.err
    assert "in job 2: parallel.tp=3 optimizer.lr=0.001, and 1 more" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_plan_is_not_swept(door: Door) -> None:
    assert "--multirun: has no effect on plan" in door("plan", "-m", "optimizer.lr=1e-3,3e-3").err


def test_a_source_that_needs_a_path_and_one_that_has_none(door: Door) -> None:
    assert door("plan", "data.path=null").code == 0
    for refused in (("data=indexed",), ("data=indexed", "data.path=null"), ("data.path=/x",)):
        answer = door("plan", *refused)
        assert answer.code == 2
        assert "data.path" in answer.out


@pytest.mark.parametrize("typed", [("data=indexed", "data.path=/nowhere/x"), ("data=text", "data.path=/nowhere/x")])
def test_data_that_is_not_there_is_told_by_the_plan_and_before_a_sweep(door: Door, tmp_path: Path, typed: tuple[str, ...]) -> None:
    answer = door("plan", *typed)
    assert answer.code == 2
    assert "/nowhere/x" in answer.out
    answer = door("--multirun", *typed, "training.seed=1,2")
    assert answer.code == 2
    assert len(answer.problems()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_plan_as_json_with_its_problem(door: Door) -> None:
    assert '"problems": []' in door("plan", "--json").out
    answer = door("plan", "--json", "optimizer.lr=1e-5", "optimizer.min_lr=1")
    assert answer.code == 2
    assert '"optimizer.min_lr"' in answer.out


def test_the_version(door: Door) -> None:
    assert door("--version").out == f"primus_app {primus_app.__version__}\n"


def test_the_configuration_shown_is_the_configuration_taken(door: Door) -> None:
    answer = door("--cfg", "job", "--resolve", "model=qwen3_tiny", "training.steps=3", "hardware=cpu")
    assert (answer.code, answer.err) == (0, "")
    shown = yaml.safe_load(answer.out)
    config = load_config(Request(("model=qwen3_tiny", "training.steps=3")), hardware="cpu")
    assert type(config).model_validate(shown) == config


def test_a_part_of_the_configuration(door: Door) -> None:
    assert yaml.safe_load(door("--cfg", "job", "--package", "training").out)["seq_len"] == 128
    assert door("--cfg", "job", "-p", "training.seq_len").out == "128\n"
    assert door("--cfg", "job", "-p", "training.tokens").out == "null\n"
    assert yaml.safe_load(door("--cfg", "job", "-p", "_global_").out)["training"]["seq_len"] == 128
    assert "hydra:" in door("--cfg", "hydra").out
    answer = door("--cfg", "job", "--package", "trainin")
    assert (answer.code, answer.err) == (2, "error: --package trainin: no such key\n  did you mean training?\n")


def test_a_folder_of_the_users(door: Door, tmp_path: Path) -> None:
    (tmp_path / "mine/model").mkdir(parents=True)
    (tmp_path / "mine/model/own.yaml").write_text("defaults: [llama_tiny, _self_]\nname: own\n")
    (tmp_path / "mine/big.yaml").write_text("defaults: [config, _self_, override model: own]\ntraining: {steps: 9}\n")
    assert '"model": "own"' in door("plan", "--json", "--config-dir", "mine", "model=own").out
    assert door("--cfg", "job", "-p", "model.name", "--config-dir", "mine", "model=own").out == "own\n"
    assert door("--cfg", "job", "-p", "training.steps", "--config-dir", "mine", "--config-name", "big").out == "9\n"
    assert "did you mean big?" in door("--config-dir", "mine", "--config-name", "bigg").err
    assert "did you mean model=own?" in door("plan", "--config-dir", "mine", "model=owm").err


def test_hydras_own_pages(tmp_path: Path) -> None:
    """In one process of its own, since Hydra sets up logging for each."""
    kinds = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
    pages = [["--info"], *(["--info", kind] for kind in kinds), ["--hydra-help"]]
    code = f"""
import logging
from primus_app.__main__ import main
for argv in {pages}:
    logging.getLogger().handlers.clear()
    print("==", *argv, main(argv))
"""
    done = python("-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" 0\n") >= len(pages)
    assert f"file://{ROOT / 'conf'}" in done.stdout
    assert "Defaults List" in done.stdout
    assert "hydra/config" in done.stdout


@pytest.mark.parametrize(
    ("argv", "code"), [(("plan",), 0), (SEVEN, 2), (("--cfg", "job"), 0), (("plna",), 2), (("model=hf", "model.path=/no/such"), 2)]
)
def test_as_a_process_from_another_folder(tmp_path: Path, argv: tuple[str, ...], code: int) -> None:
    done = python("-m", "primus_app", *argv, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert (done.stderr == "") == (code == 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["--help", "plan model=llama3_1_405b parallel=tp8_pp16 hardware=mi300x"])
def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path, verb: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m primus_app {verb} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def loaded(argv: list[str], names: tuple[str, ...], folder: Path) -> set[str]:
    """Which of the packages a command line imports."""
    code = f"import sys; from primus_app.__main__ import main; main({argv}); print('\\nloaded', *sys.modules)"
    done = python("-c", code, folder=folder)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1].split()
    assert last[0] == "loaded"
    return set(names) & set(last)


@pytest.mark.parametrize("argv", [["--cfg", "job"], ["--help"], ["plan"], ["plan", "--json"], list(SEVEN), ["--multirun", *SEVEN]])
def test_a_verb_that_does_not_train_imports_no_engine(tmp_path: Path, argv: list[str]) -> None:
    # The estimates are written for arrays of layouts too.
    arithmetic = {"numpy"} if "plan" in argv else set()
    assert loaded(argv, ENGINES, tmp_path) <= arithmetic


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["plna"]])
def test_help_does_not_even_import_hydra(tmp_path: Path, argv: list[str]) -> None:
    assert loaded(argv, ("hydra", "omegaconf"), tmp_path) == set()


@pytest.mark.parametrize("argv", [[], ["plan"], ["--cfg", "job"], ["modle=x"]])
def test_a_current_folder_that_is_gone(tmp_path: Path, argv: list[str]) -> None:
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {shlex.quote(sys.executable)} -m primus_app {' '.join(argv)}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: current folder: has been deleted\n  cd to a folder that is there\n"
