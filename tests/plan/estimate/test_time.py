"""The whole run's time, cost and failures, by hand from the time of a step."""

from math import inf

import pytest

from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.config.schema import Config
from primus_app.plan.estimate.render_time import duration
from primus_app.plan.estimate.time import PARTS, TimeEstimate, estimate_time, time_unknown, write_s
from primus_app.plan.plan import Plan, make_plan

LLAMA_70B = ("model=llama3_70b", "parallel=tp8_pp4", "hardware=mi300x", "precision=bf16", "training.micro_batch_size=1", "cluster.nodes=8")
LONG = ("training.seq_len=8192", "training.global_batch_size=128", "training.steps=1000", "backend=megatron", "checkpoint.every=100")


def planned(*overrides: str) -> tuple[Config, Plan]:
    config = load_config(Request((*LLAMA_70B, *LONG, *overrides)), hardware="cpu")
    return config, make_plan(config, local_devices=8)


def estimated(*overrides: str) -> TimeEstimate:
    config, plan = planned(*overrides)
    assert plan.mesh is not None
    assert plan.batch is not None
    return estimate_time(config, plan.mesh, plan.batch)


def test_the_parts_add_up_to_the_step() -> None:
    step = estimated().step
    assert sum(float(getattr(step, name)) for name in PARTS) == pytest.approx(float(step.total), rel=1e-9)


def test_a_run_is_its_steps_and_costs_its_device_hours() -> None:
    found = estimated("hardware.price_per_hour=2.5", "plan.failures_per_node_day=0", "checkpoint.every=0")
    assert found.duration_s == pytest.approx(1000 * float(found.step.total))
    assert found.with_failures_s == found.duration_s
    assert found.device_hours == pytest.approx(64 * found.duration_s / 3600)
    assert found.cost == pytest.approx(2.5 * found.device_hours)
    assert estimated().cost is None


def test_a_checkpoint_is_twelve_bytes_a_weight_from_all_nodes() -> None:
    config, plan = planned("plan.checkpoint_gb_s=2")
    assert plan.mesh is not None
    assert write_s(config, plan.mesh) == pytest.approx(12 * 70_553_706_496 / 8 / 2e9)


def test_in_the_background_training_waits_for_the_copy_to_the_host() -> None:
    config, plan = planned("checkpoint.async=true")
    assert plan.mesh is not None
    assert write_s(config, plan.mesh) == pytest.approx(12 * 70_553_706_496 / 64 / 20e9)


def test_failures_make_it_longer_by_the_effective_share() -> None:
    found = estimated()
    assert found.with_failures_s == pytest.approx(found.duration_s / found.reliability.effective)
    assert found.reliability.failures_per_day == pytest.approx(8 * 3.8e-3)


def test_tokens_of_a_day_are_those_of_all_devices() -> None:
    found = estimated()
    assert found.tokens_per_day == pytest.approx(64 * float(found.step.tokens_per_s_per_device) * 86400)


def test_a_cpu_has_no_figures_and_says_which() -> None:
    config = load_config(Request(()), hardware="cpu")
    assert "hardware.hbm_tb_s" in time_unknown(config)
    assert time_unknown(planned()[0]) == ()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12.3 ms"), (1.5, "1.5 s"), (90.0, "90 s"), (120.0, "2.0 min"), (7200.0, "2.0 h"), (200_000.0, "2.3 days"), (inf, "never")],
)
def test_durations_are_said_as_people_do(seconds: float, text: str) -> None:
    assert duration(seconds) == text
