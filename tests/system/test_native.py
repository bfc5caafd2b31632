"""The engines' own options in real runs: they are carried out, and the loss curve stays what it was."""

import json
from pathlib import Path

import pytest

from tests.system.program import Forge, Start, losses, rows

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


MEGATRON = (
    "backend=megatron",
    "training.steps=6",
    "checkpoint=none",
    "optimizer.lr=1e-3",
    "training.eval_every=3",
    "training.eval_steps=1",
)
OVERLAPPING = ("backend.native.ddp.overlap_grad_reduce=true", "backend.native.ddp.overlap_param_gather=true")
LAYOUTS = {
    "fsdp": ("parallel=fsdp", "cluster.devices_per_node=2", "precision=bf16"),
    "interleaved": ("parallel=pp2", "parallel.schedule=interleaved", "parallel.vpp=2", "parallel.dp_shard=2", "cluster.devices_per_node=4"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_overlapping_communication_gives_the_same_curve(forge: Forge, tmp_path: Path, layout: str) -> None:
    """Sums and weights of the distributed optimizer on their way while a step computes, over two micro batches, evaluations between."""
    common = (*MEGATRON, *LAYOUTS[layout], "training.global_batch_size=8", "training.micro_batch_size=2")
    plain = forge.train(*common, workspace=tmp_path, exp_name="plain")
    other = forge.train(*common, *OVERLAPPING, workspace=tmp_path, exp_name="overlapping")
    for name in ("loss", "grad_norm", "eval_loss"):
        found = [row[name] for row in rows(other) if name in row]
        assert found == pytest.approx([row[name] for row in rows(plain) if name in row], rel=1e-6), name
        assert len(found) == (2 if name == "eval_loss" else 6)
    native = json.loads((other / "native/megatron.json").read_text())
    assert native["data_parallel"]["overlap_grad_reduce"] is True
    assert native["optimizer"]["overlap_param_gather"] is True
    assert native["data_parallel"]["align_param_gather"] is (layout == "interleaved")


def test_recomputing_other_modules_in_fused_functions_gives_the_same_curve(forge: Forge, tmp_path: Path) -> None:
    """Small buckets too; which sums of float32 numbers come first is all that differs."""
    common = (*MEGATRON, *LAYOUTS["fsdp"][:2], "training.recompute=selective")
    plain = forge.train(*common, workspace=tmp_path, exp_name="plain")
    options = (
        "backend.native.transformer.recompute_modules=[mlp,core_attn]",
        "backend.native.transformer.bias_activation_fusion=true",
        "backend.native.transformer.bias_dropout_fusion=true",
        "backend.native.ddp.check_for_nan_in_grad=true",
        "backend.native.ddp.bucket_size=20000",
    )
    other = forge.train(*common, *OVERLAPPING, *options, workspace=tmp_path, exp_name="other")
    assert losses(other) == pytest.approx(losses(plain), rel=1e-6)
