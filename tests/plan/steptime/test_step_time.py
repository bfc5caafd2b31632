"""The predicted step: its parts, what makes it longer, one layout against arrays of them, and the simulated pipeline."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import yaml

from primus_app.config.location import conf_dir
from primus_app.config.schema import HardwareConfig, ModelConfig
from primus_app.plan.steptime.collectives import Group
from primus_app.plan.steptime.exchanges import copies_between_nodes
from primus_app.plan.steptime.rates import missing_constants
from primus_app.plan.steptime.schedules import total_s
from primus_app.plan.steptime.step_time import StepTime, step_time, timeline
from primus_app.plan.workload import RECOMPUTE, Layout, Workload

BASE = yaml.safe_load((conf_dir() / "config.yaml").read_text())
DEVICES = sorted(file.stem for file in (conf_dir() / "hardware").glob("*.yaml") if file.stem not in ("auto", "cpu"))


def hardware_of(name: str, **changes: Any) -> HardwareConfig:
    return HardwareConfig(**{**BASE["hardware"], **yaml.safe_load((conf_dir() / "hardware" / f"{name}.yaml").read_text()), **changes})


def model_of(name: str) -> ModelConfig:
    return ModelConfig(**{**BASE["model"], **yaml.safe_load((conf_dir() / "model" / f"{name}.yaml").read_text())})


def work(model: str = "llama3_70b", **changes: Any) -> Workload:
    config = model_of(model)
    return replace(Workload(config, 8192, 128, "megatron", "bf16", "1f1b", config.vocab_size, fused=True), **changes)


def layout(**changes: Any) -> Layout:
    plain = Layout(
        tp=1,
        pp=1,
        vpp=1,
        cp=1,
        ep=1,
        etp=1,
        dp_replicate=1,
        dp_shard=1,
        micro_batch_size=1,
        num_microbatches=16,
        sequence_parallel=1,
        sharded_optimizer=1,
        recompute=0,
    )
    return replace(plain, **changes)


H100 = hardware_of("h100")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", ["llama3_8b", "deepseek_v3", "gpt_oss_20b"])
@pytest.mark.parametrize("engine", ["megatron", "torchtitan"])
def test_parts_add_up_and_use_is_below_the_peak(device: str, model: str, engine: Any) -> None:
    step = step_time(work(model, engine=engine), layout(tp=8, pp=2, dp_shard=4, ep=8), hardware_of(device))
    parts = (step.compute, step.tp, step.cp, step.ep, step.dp, step.pp, step.bubble, step.optimizer)
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(step.total)
    assert 0 < step.mfu < 0.9


def test_use_is_model_flops_over_the_peak() -> None:
    """Llama 3 70B on one rank: 6 N + 12 L h s = 6 · 69.5e9 + 12 · 80 · 8192 · 8192 a token (see the tests of parameters)."""
    step = step_time(work(), layout(), H100)
    assert step.tokens_per_s_per_device == pytest.approx(16 * 8192 / step.total)
    assert step.mfu == pytest.approx(step.tokens_per_s_per_device * 4.8143e11 / 989.4e12, rel=1e-3)


@pytest.mark.parametrize("changes", [{"num_microbatches": 17}, *({"recompute": RECOMPUTE.index(kind)} for kind in ("selective", "full"))])
def test_more_work_takes_longer(changes: dict[str, int]) -> None:
    base = layout(tp=8, pp=4, dp_shard=2)
    assert step_time(work(), replace(base, **changes), H100).total > step_time(work(), base, H100).total


def test_half_of_the_layers_recomputed_cost_half_of_it() -> None:
    none, some, full = (
        step_time(work(recompute_layers=layers), layout(tp=8, recompute=RECOMPUTE.index(kind)), H100).compute
        for kind, layers in (("none", None), ("full", 40), ("full", None))
    )
    assert some == pytest.approx((none + full) / 2)


@pytest.mark.parametrize("changes", [{"nic_gb_s": 25}, {"hbm_tb_s": 1.0}, {"link_gb_s": 100}])
@pytest.mark.parametrize("engine", ["megatron", "torchtitan"])
def test_slower_hardware_takes_longer(changes: dict[str, Any], engine: Any) -> None:
    at_work, spread = work(engine=engine), layout(tp=8, dp_shard=64)
    assert step_time(at_work, spread, hardware_of("h100", **changes)).total > step_time(at_work, spread, H100).total


def test_interleaving_divides_the_bubble() -> None:
    plain = step_time(work(), layout(tp=8, pp=4, vpp=1), H100)
    interleaved = step_time(work(schedule="interleaved"), layout(tp=8, pp=4, vpp=5), H100)
    assert interleaved.bubble == pytest.approx(plain.bubble / 5)


def test_overlap_hides_communication() -> None:
    spread = layout(tp=8, dp_shard=64, num_microbatches=1)
    assert step_time(work(overlap_dp=True), spread, H100).dp < 0.6 * step_time(work(overlap_dp=False), spread, H100).dp
    assert step_time(work(overlap_tp=True), spread, H100).tp < step_time(work(), spread, H100).tp


def test_waits_for_sends_cross_the_network_once() -> None:
    """Without sequence parallelism all 8 ranks of tp hold the same: each sends an eighth, which links gather (arXiv 2104.04473, 4.1)."""
    placed = layout(tp=8, pp=4, dp_shard=2, sequence_parallel=0)
    whole, parts = (step_time(work(waits_for_sends=waits), placed, H100).pp for waits in (False, True))
    num_bytes, latency = 2 * 8192 * 8192, H100.latency_us
    waits = 2 * 3 + 2 * 16
    assert whole == pytest.approx(waits * (num_bytes / (50e9 * 0.85) + latency.nic * 1e-6), rel=1e-6)
    gathered = num_bytes * 7 / 8 / (450e9 * 0.84) + 7 * latency.link * 1e-6
    each = num_bytes / 8 / (50e9 * 0.85) + latency.nic * 1e-6 + gathered
    assert parts == pytest.approx(waits * each, rel=1e-6)
    # 5 virtual stages: one exchange for each pair of passes of 16 micro batches.
    interleaved = step_time(work(schedule="interleaved", waits_for_sends=True), replace(placed, vpp=5), H100)
    assert interleaved.pp == pytest.approx((2 * 3 + 5 * 16) * each, rel=1e-6)


def test_zero_3_gathers_once_more_to_compute_again() -> None:
    """Without overlap: forward, again and backward, and one sum of gradients (arXiv 2104.07857, section 4.1); bytes alone count here."""
    device = H100.model_copy(update={"latency_us": H100.latency_us.model_copy(update={"link": 0.0, "nic": 0.0})})
    old = work(engine="torchtitan", overlap_dp=False, reduce="bf16", gathers="tensors")
    three, two = (step_time(old, layout(dp_shard=64, recompute=recompute, num_microbatches=1), device).dp for recompute in (2, 0))
    assert three / two == pytest.approx(4 / 3)


def test_a_token_reaches_the_nodes_of_its_groups_only() -> None:
    """DeepSeek-V3 chooses 8 experts from 4 of 8 groups: over 8 nodes 4 · (1 − (3/4)^8) of them get a copy, without groups 5.25."""
    moe, ranks = model_of("deepseek_v3").moe, Group(64, 8, 8)
    assert moe is not None
    assert copies_between_nodes(moe, ranks) == pytest.approx(4 * (1 - 0.75**8) / 8)
    assert copies_between_nodes(moe.model_copy(update={"n_group": 1, "topk_group": 1}), ranks) == pytest.approx(8 * (1 - 0.875**8) / 8)
    # Two nodes with four groups each: a token's groups are on either.
    assert copies_between_nodes(moe, Group(16, 8, 2)) == pytest.approx(2 * (1 - 0.5**8) / 8)


def test_arrays_of_layouts_give_what_each_gives() -> None:
    choices = [
        layout(tp=8, pp=4, vpp=5, cp=2, dp_shard=2, num_microbatches=32),
        layout(tp=1, dp_shard=64, recompute=2),
        layout(tp=4, pp=3, dp_shard=8, sequence_parallel=0, recompute=1),
        layout(dp_shard=8, dp_replicate=4, sharded_optimizer=0),
    ]
    for at_work in (work(), work("deepseek_v3"), work("gpt_oss_20b", engine="torchtitan", compute="fp8")):
        many = Layout(**{field.name: np.array([getattr(one, field.name) for one in choices]) for field in fields(Layout)})
        together = step_time(at_work, many, H100)
        for index, one in enumerate(choices):
            alone = step_time(at_work, one, H100)
            for field in fields(StepTime):
                value = np.broadcast_to(getattr(together, field.name), len(choices))[index]
                assert value == pytest.approx(float(getattr(alone, field.name)), rel=1e-9), field.name


@pytest.mark.parametrize(("schedule", "pp", "vpp"), [("1f1b", 4, 1), ("interleaved", 4, 5), ("gpipe", 4, 1), ("1f1b", 1, 1)])
def test_the_timeline_is_as_long_as_the_closed_form_says(schedule: Any, pp: int, vpp: int) -> None:
    """80 layers divide evenly; the output layer on the last stage, and sending, are where the two may differ."""
    at_work, placed = work(schedule=schedule), layout(tp=8, pp=pp, vpp=vpp, num_microbatches=32)
    step = step_time(at_work, placed, H100)
    assert total_s(timeline(at_work, placed, H100)) == pytest.approx(step.total - step.dp - step.optimizer, rel=0.03)


def test_a_cpu_has_no_step_time() -> None:
    cpu = hardware_of("cpu")
    assert "hardware.peak_tflops.bf16" in missing_constants(cpu, work())
    with pytest.raises(ValueError, match=r"hardware\.nic_gb_s"):
        step_time(work(), layout(), cpu)
