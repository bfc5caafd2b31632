"""Megatron-LM's own trainer, run for real: its curve is that of our loop over megatron.core, also after a start in the middle."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.program import Start, losses, rows, status

pytestmark = pytest.mark.slow

VERSION = "0.17.0"
OVERLAPPING = ("backend.native.overlap_grad_reduce=true", "backend.native.overlap_param_gather=true", "backend.native.manual_gc=true")
COMMON = ("backend=megatron", "training.eval_every=5", "training.eval_steps=1", "optimizer.lr=1e-3", "optimizer.schedule_steps=10")


@pytest.fixture(scope="session")
def megatron_lm(request: pytest.FixtureRequest) -> Path:
    """A folder with megatron.core and megatron.training, kept in pytest's cache; its wheel asks for a newer Python and runs on this one."""
    cache = request.config.cache
    assert cache is not None
    folder = cache.mkdir("megatron") / VERSION
    if not folder.is_dir():
        fresh = folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        arguments = ["--quiet", "--disable-pip-version-check", "--ignore-requires-python", "--no-deps", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", "install", *arguments, "--target", str(fresh), f"megatron-core=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"pip could not get megatron-core {VERSION}: {done.stderr.strip().splitlines()[-1:]}")
        fresh.rename(folder)
    return folder


def numbers(run: Path, name: str) -> list[float]:
    return [row[name] for row in rows(run) if name in row]


def test_the_trainers_curve_is_the_loops(start: Start, megatron_lm: Path) -> None:
    """10 steps of tp2 and dp2 whose communication overlaps, and of one process in two starts, against megatron.core: relative 1e-5 each."""
    core = start(*COMMON, "training.steps=10", "checkpoint=none", exp_name="core")
    code, output = core.end()
    assert code == 0, output
    pretrain = (*COMMON, "backend.runner=pretrain", f"backend.megatron_path='{megatron_lm}'")

    first = start(*pretrain, "training.steps=5", "checkpoint.every=5", "checkpoint.async=true", exp_name="single")
    code, output = first.end()
    assert code == 0, output
    then = start(*pretrain, "training.steps=10", "checkpoint.every=5", exp_name="single")
    code, output = then.end()
    assert code == 0, output
    layout = ("parallel=tp2", "parallel.dp_shard=2", "cluster.devices_per_node=4")
    divided = start(*pretrain, *layout, *OVERLAPPING, "training.steps=10", "checkpoint=none", exp_name="tp2")
    code, output = divided.end()
    assert code == 0, output

    assert len(losses(core.run)) == 10
    for other in (then, divided):
        assert [row["step"] for row in rows(other.run) if "loss" in row] == list(range(1, 11))
        assert losses(other.run) == pytest.approx(losses(core.run), rel=1e-5)
        assert numbers(other.run, "grad_norm") == pytest.approx(numbers(core.run, "grad_norm"), rel=1e-4)
        assert numbers(other.run, "lr") == pytest.approx(numbers(core.run, "lr"), rel=1e-12)
        assert numbers(other.run, "eval_loss") == pytest.approx(numbers(core.run, "eval_loss"), rel=1e-5)
        assert status(other.run)["state"] == "completed"
    assert set(rows(then.run)[0]) == set(rows(core.run)[0])
    assert [path.name for path in (then.run / "checkpoints").glob("step-*")] != []
    assert list((then.run / "tensorboard").glob("events*"))
    received = (divided.run / "native/megatron.args").read_text()
    assert all(
        f"--{name}" in received for name in ("tensor-model-parallel-size 2", "overlap-grad-reduce", "overlap-param-gather", "manual-gc")
    )


TOO_NEW = """
import json, sys
sys.path.insert(0, {path!r})
from megatron.training import arguments
upstream = arguments.add_megatron_arguments
def changed(parser):
    upstream(parser)
    lost = parser._option_string_actions["--swiglu"]
    lost.option_strings, parser._option_string_actions = ["--gated-silu"], {{**parser._option_string_actions}}
    parser._option_string_actions["--seq-length"].type = float
    return parser
arguments.add_megatron_arguments = changed
from primus_app.backends.megatron.pretrain.run import check_parser
try:
    check_parser([("--swiglu", []), ("--seq-length", ["32"]), ("--num-layers", ["4"])], "0.17.0")
except RuntimeError as error:
    print(json.dumps(str(error)))
"""


def test_a_parser_that_takes_other_arguments_is_told(megatron_lm: Path) -> None:
    """The real parser, with one argument renamed and another of a new type."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TOO_NEW.format(path=str(megatron_lm))], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert "--swiglu: no such argument" in told
    assert "--seq-length: was store int of seq_length and is store float of seq_length" in told
    assert "--num-layers" not in told


RECORD = """
import json, sys
from argparse import ArgumentParser
sys.path.insert(0, {path!r})
from megatron.training.arguments import add_megatron_arguments
from primus_app.backends.megatron.pretrain.recorded_arguments import facts_of, recorded
print(facts_of(add_megatron_arguments(ArgumentParser(allow_abbrev=False))) == recorded("0.17.0"))
"""


def test_the_record_is_of_the_published_parser(megatron_lm: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RECORD.format(path=str(megatron_lm))], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"


def test_the_trainer_that_diverges_stops_as_the_loop_does(start: Start, megatron_lm: Path) -> None:
    """A rate of 1e30: step 2 has no finite gradient; what was saved before stays, and nothing is saved after."""
    pretrain = ("backend=megatron", "backend.runner=pretrain", f"backend.megatron_path='{megatron_lm}'")
    layout = ("parallel=pp2", "cluster.devices_per_node=2", "logging.every=100", "training.steps=12", "checkpoint.every=1")
    program = start(*pretrain, *layout, "optimizer.lr=1e30", "optimizer.warmup_steps=1")
    code, output = program.end()
    assert code == 4, output
    assert "Diverged: the loss of step 2 is " in output
    assert "Lower optimizer.lr" in output
    assert [path.name for path in (program.run / "checkpoints").iterdir()] == ["step-1"]
