"""TorchTitan's own options in a real run: they are carried out, and the loss curve stays what it was."""

import json

import pytest

from tests.system.program import Start, losses

pytestmark = pytest.mark.slow

OPTIONS = (
    "backend.native.compile.enable=true",
    "backend.native.compile.backend=aot_eager",
    "+backend.native.profiler.enable_profiling=true",
    "backend.native.profiler.profile_freq=4",
    "backend.native.profiler.save_traces_folder=traces",
    "backend.native.loss.num_chunks=2",
    "backend.native.optimizer.implementation=foreach",
    "backend.native.comm.init_timeout_seconds=77",
)


def test_compiled_profiled_and_on_the_same_curve(start: Start) -> None:
    plain = start("training.steps=5", "checkpoint=none", exp_name="plain")
    code, output = plain.end()
    assert code == 0, output
    other = start("training.steps=5", "checkpoint=none", *OPTIONS, exp_name="other")
    code, output = other.end()
    assert code == 0, output
    assert losses(other.run) == pytest.approx(losses(plain.run), rel=1e-6)
    assert [trace.name for trace in (other.run / "traces").rglob("*.json.gz")] == ["rank0_trace.json.gz"]
    native = json.loads((other.run / "native/torchtitan.json").read_text())
    assert native["compile"]["backend"] == "aot_eager"
    assert native["comm"]["init_timeout_seconds"] == 77
    log = (other.run / "logs/pre_trainer/rank-0/info.log").read_text()
    assert "Compiling each TransformerBlock" in log


def test_a_wrong_option_starts_nothing(start: Start) -> None:
    program = start("backend.native.compile.enabel=true")
    code, output = program.end()
    assert code == 2
    assert "did you mean backend.native.compile.enable?" in output
    assert not program.run.exists()
