"""Where TorchTitan's defaults or its code would surprise: each trap of docs/backends.md that no other test holds.

A test first states what the installed TorchTitan does, so that a trap that upstream has mended shows.
"""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from primus_app.backends.base import RankContext
from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.data.prepared import PreparedData, SplitData
from primus_app.plan.plan import make_plan
from primus_app.run.directory import RunDirectory

ROOT = Path(__file__).parents[3]
DATA = PreparedData("mock", SplitData(), SplitData(), "0", None, 256, None)


@pytest.fixture
def translated(tmp_path: Path) -> Any:
    """``translated(overrides…)``: TorchTitan's configuration of them."""

    def make(*overrides: str) -> Any:
        from primus_app.backends.torchtitan.translate import translate

        config = load_config(Request(overrides), hardware="cpu")
        plan = make_plan(config, local_devices=1, local_hardware="cpu")
        assert plan.mesh is not None
        assert plan.batch is not None
        context = RankContext(config, RunDirectory(tmp_path), 0, DATA, rank=0, local_rank=0, world_size=1)
        return translate(context, plan.mesh, plan.batch, plan.stages, cpu=True)

    return make


def test_the_last_checkpoint_is_whole(translated: Any) -> None:
    """Upstream's holds the model alone, so that no run can go on from it."""
    from torchtitan.components.checkpointer import CheckpointManager

    assert CheckpointManager.Config().last_save_model_only is True
    assert translated().checkpoint.last_save_model_only is False


def test_the_loss_is_whole_under_zero_bubble_and_in_pieces_elsewhere(translated: Any) -> None:
    """A backward pass that is split meets chunks that were freed: gradients 0.3 % off."""
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss

    assert isinstance(translated().loss, ChunkedLossWrapper.Config)
    pipeline = ("parallel=pp2", "cluster.devices_per_node=2", "training.micro_batch_size=2")
    assert isinstance(translated(*pipeline, "parallel.schedule=zero_bubble").loss, CrossEntropyLoss.Config)


def test_no_clipping_leaves_gradients_alone(translated: Any) -> None:
    """Upstream scales gradients to max_norm: with 0 nothing would ever be learnt."""
    from torchtitan.distributed.utils import clip_grad_norm_

    def clipped(max_norm: float) -> torch.Tensor:
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.full((3,), 2.0)
        clip_grad_norm_([weight], max_norm)
        return weight.grad

    assert clipped(0.0).abs().max() == 0
    assert translated("optimizer.clip_grad_norm=0").training.max_norm == math.inf
    assert clipped(math.inf).tolist() == [2.0, 2.0, 2.0]


def test_a_pipeline_asks_for_no_cuda_graphs(translated: Any) -> None:
    """Upstream's default stops with an error as soon as there is a pipeline."""
    from torchtitan.config import TrainingConfig

    assert TrainingConfig().disable_cuda_graphs is False
    assert translated().training.disable_cuda_graphs is True


def test_sharded_tensors_are_described_in_the_way_that_torch_2_13_knows(translated: Any) -> None:
    from torchtitan.config import ParallelismConfig

    assert ParallelismConfig().spmd_backend == "spmd_types"
    assert translated().parallelism.spmd_backend == "partial_dtensor"


def test_nothing_is_read_from_a_checkout_of_torchtitan(translated: Any) -> None:
    """Upstream's defaults name ./tests/assets of its repository, which no wheel has."""
    from torchtitan.trainer import Trainer

    assert Trainer.Config().hf_assets_path == "./tests/assets/tokenizer"
    assert "tests/assets" not in str(translated().to_dict())


def test_an_unknown_device_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream takes an A100's 312 TFLOP/s, so that a CPU would have an MFU."""
    from torchtitan.tools import utils

    from primus_app.backends.torchtitan.trainer_patches import apply_cpu_peak

    stock = utils.get_peak_flops
    monkeypatch.setattr(utils, "get_peak_flops", stock)
    if stock.__module__ == utils.__name__:
        assert stock("CPU") == 312e12
    apply_cpu_peak()
    assert math.isnan(utils.get_peak_flops("CPU"))
    config = load_config(Request(("hardware=cpu",)), hardware="cpu")
    assert config.hardware.peak_tflops.fp32 is None


def test_the_trainer_does_not_sleep_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from torchtitan import trainer

    from primus_app.backends.torchtitan.trainer_patches import apply_final_sleep

    monkeypatch.setattr(trainer, "time", trainer.time)
    apply_final_sleep()
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    trainer.time.sleep(2)
    assert slept == []
    assert trainer.time.perf_counter() > 0


def test_experts_move_no_bias_unless_asked(model_of: Any) -> None:
    """Upstream's own experts all move one, qwen3's too, which is another loss curve than the published model's."""
    from torchtitan.models.common.moe import MoE
    from torchtitan.models.qwen3 import model_registry

    from primus_app.backends.torchtitan.model import build_model_spec

    stock = model_registry("debugmodel_moe").model
    assert {moe.load_balance_coeff for _, moe, _, _ in stock.traverse(MoE.Config)} == {1e-3}
    spec = build_model_spec(model_of("qwen3_moe_tiny"), seq_len=8, cpu=True, compute="fp32")
    assert {moe.load_balance_coeff for _, moe, _, _ in spec.model.traverse(MoE.Config)} == {None}
    assert spec.post_optimizer_build_fn is None


def test_a_pipeline_counts_no_tokens_before_the_first_step(tmp_path: Path) -> None:
    """Upstream's stage runs its module to learn shapes, and a module that counts what it sees counts that too."""
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage

    from primus_app.backends.torchtitan import shape_pass_patch

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x.shape[0])
            return self.linear(x)

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        stage = PipelineStage(Counting(), 0, 1, torch.device("cpu"))
        stock = getattr(PipelineStage._forward_metadata_inference, "__wrapped__", PipelineStage._forward_metadata_inference)
        stock(stage, (torch.ones(3, 4),), {}, has_backward=False)
        assert stage.submod.seen.item() == 3
        shape_pass_patch.apply_shape_pass()
        shape_pass_patch.apply_shape_pass()
        stage._forward_metadata_inference((torch.ones(3, 4),), {}, has_backward=False)
        assert stage.submod.seen.item() == 3
    finally:
        dist.destroy_process_group()


def test_mixed_precision_holds_without_sharding_too(tmp_path: Path) -> None:
    """Upstream's help says it needs data parallelism; its code wraps every model, at degree 1 as well."""
    source = Path(__import__("torchtitan").__file__).parent / "models/llama3/parallelize.py"
    text = source.read_text()
    assert "if parallel_dims.fsdp_enabled" not in text
    assert "apply_fsdp_to_decoder(" in text


def test_every_trap_names_a_test_that_is_there() -> None:
    page = (ROOT / "docs/backends.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page))
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


@pytest.mark.parametrize("title", ["## Our keys as TorchTitan's options", "## Our keys as Megatron's settings"])
def test_the_table_of_keys_has_every_key(title: str) -> None:
    """Our key to the engine's option: no key of the engine's sections is left out."""
    from primus_app.config.kinds import schema_leaves

    page = (ROOT / "docs/backends.md").read_text().partition(title)[2].partition("\n## ")[0]
    sections = ("training.", "optimizer.", "precision.", "parallel.", "checkpoint.", "logging.")
    names = set(re.findall(r"`([\w.]+)`", page))
    missing = [key for key in schema_leaves() if key.startswith(sections) and key not in names]
    assert missing == []
