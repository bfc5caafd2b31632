"""Megatron's settings as our configuration makes them: what its defaults would get wrong, and that its own classes take all of them."""

import math
from typing import Any

import pytest

from primus_app.backends.megatron.translate import data_parallel_settings, optimizer_settings, parallel_settings, transformer_settings
from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.plan.plan import Plan, make_plan


def settings(*overrides: str, cpu: bool = True, engine: bool = False) -> tuple[dict[str, Any], Any, Plan]:
    config = load_config(Request(("backend=megatron", *overrides)), hardware="cpu")
    plan = make_plan(config, local_devices=1)
    assert plan.mesh is not None
    return transformer_settings(config, plan.mesh, plan.stages, cpu=cpu, engine=engine), config, plan


INTERLEAVED = ("parallel=pp2", "parallel.schedule=interleaved", "parallel.vpp=2", "cluster.devices_per_node=2")


def test_interleaved_stages_exchange_one_by_one() -> None:
    """Batched exchange of two interleaved stages trains wrong without a word."""
    found, _, _ = settings(*INTERLEAVED)
    assert (found["overlap_p2p_comm"], found["batch_p2p_comm"]) == (True, False)
    found, _, _ = settings("parallel=pp2", "cluster.devices_per_node=2")
    assert (found["overlap_p2p_comm"], found["batch_p2p_comm"]) == (False, True)


def test_outputs_stay_while_gloo_still_sends_them() -> None:
    """Freed early, they arrive as NaN."""
    assert settings(*INTERLEAVED)[0]["deallocate_pipeline_outputs"] is False
    assert settings(*INTERLEAVED, cpu=False)[0]["deallocate_pipeline_outputs"] is True


def test_tensors_that_tp_divides_are_marked() -> None:
    """Without initialization Megatron leaves out the marks that its gradient norm goes by."""
    assert settings("parallel=tp2", "cluster.devices_per_node=2")[0]["perform_initialization"] is True


def test_the_loss_is_a_mean_over_tokens() -> None:
    assert settings()[0]["calculate_per_token_loss"] is True


def test_experts_that_tp_shares_are_gathered_on_a_cpu() -> None:
    """gloo gathers no parts of different sizes."""
    shared = ("model=qwen3_moe_tiny", "parallel=tp2", "parallel.etp=2", "cluster.devices_per_node=2")
    assert settings(*shared)[0]["moe_token_dispatcher_type"] == "allgather"
    assert settings(*shared, cpu=False)[0]["moe_token_dispatcher_type"] == "alltoall"


def test_the_layers_are_divided_as_in_the_plan() -> None:
    """Six layers on four stages: one fewer on the first and the last."""
    found, _, _ = settings("model.num_hidden_layers=6", "parallel=pp2", "parallel.pp=4", "cluster.devices_per_node=4")
    layout = found["pipeline_model_parallel_layout"]
    assert [stage.count("decoder") for stage in layout] == [1, 2, 2, 1]
    assert layout[0][0] == "embedding"
    assert layout[-1][-1] == "loss"
    assert "pipeline_model_parallel_layout" not in settings("parallel=pp2", "cluster.devices_per_node=2")[0]


@pytest.mark.parametrize("balancing", ["none", "expert_bias"])
def test_the_selection_bias_moves_only_when_asked(balancing: str) -> None:
    """By 0.001 a step (arXiv 2412.19437, section 4.2)."""
    found, _, _ = settings("model=deepseek_v3_tiny", f"training.load_balancing={balancing}")
    assert found["moe_router_enable_expert_bias"] is True
    assert found["moe_router_bias_update_rate"] == (1e-3 if balancing == "expert_bias" else 0.0)


def test_a_balance_loss_is_one_of_sequences() -> None:
    found, _, _ = settings("model=qwen3_moe_tiny", "training.load_balancing=aux_loss", "training.aux_loss_coefficient=0.5")
    assert (found["moe_router_load_balancing_type"], found["moe_aux_loss_coeff"]) == ("seq_aux_loss", 0.5)
    found, _, _ = settings("model=qwen3_moe_tiny")
    assert (found["moe_router_load_balancing_type"], found["moe_aux_loss_coeff"]) == ("none", 0.0)


def test_without_clipping_the_norm_is_still_measured() -> None:
    _, config, plan = settings("optimizer.clip_grad_norm=0")
    assert plan.mesh is not None
    assert optimizer_settings(config, plan.mesh, cpu=True)["clip_grad"] == math.inf


@pytest.mark.parametrize(
    ("overrides", "sharded", "instances"),
    [
        (("parallel=dp", "cluster.devices_per_node=4"), False, 1),
        (("parallel=fsdp", "cluster.devices_per_node=4"), True, 1),
        (("parallel=fsdp", "parallel.dp_replicate=2", "cluster.devices_per_node=4"), True, 2),
        (("parallel=cp2", "cluster.devices_per_node=2"), False, 1),
        (("parallel=cp2", "parallel.distributed_optimizer=true", "cluster.devices_per_node=2"), True, 1),
    ],
)
def test_the_optimizer_is_sharded_over_dp_shard(overrides: tuple[str, ...], sharded: bool, instances: int) -> None:
    _, config, plan = settings(*overrides)
    assert plan.mesh is not None
    found = data_parallel_settings(config, plan.mesh, cpu=True)
    assert (found["use_distributed_optimizer"], found["num_distributed_optimizer_instances"]) == (sharded, instances)
    assert parallel_settings(plan.mesh)["num_distributed_optimizer_instances"] == instances


@pytest.mark.parametrize(("given", "method", "number"), [((), "uniform", 1), (("training.recompute_layers=2",), "block", 2)])
def test_full_recomputation_of_all_layers_or_the_first(given: tuple[str, ...], method: str, number: int) -> None:
    found, _, _ = settings("training.recompute=full", *given)
    assert (found["recompute_granularity"], found["recompute_method"], found["recompute_num_layers"]) == ("full", method, number)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("model=llama3_1_8b",),
        ("model=qwen2_5_7b",),
        ("model=qwen3_30b_a3b",),
        ("model=mixtral_8x7b", "training.recompute=full"),
        ("training.recompute=full", "training.recompute_layers=2"),
        ("model=deepseek_v2_lite", "training.recompute=selective"),
        ("model=deepseek_v3",),
        ("precision=bf16",),
        INTERLEAVED,
    ],
)
def test_megatrons_own_classes_take_every_setting(overrides: tuple[str, ...]) -> None:
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig

    from primus_app.backends.megatron.model import native, transformer_config

    found, config, plan = settings(*overrides)
    assert plan.mesh is not None
    made = transformer_config(found)
    for name, value in native(found).items():
        if name != "pipeline_model_parallel_layout":
            assert getattr(made, name) == value, name
    DistributedDataParallelConfig(**data_parallel_settings(config, plan.mesh, cpu=True))
    OptimizerConfig(**native(optimizer_settings(config, plan.mesh, cpu=True)))


@pytest.mark.slow
def test_windows_under_cp_are_not_left_to_transformer_engine() -> None:
    """Its exchange of keys, p2p, knows no windows."""
    from primus_app.backends.megatron.model import has_own_attention, transformer_config

    windows, context = "model.sliding_window=16", ("parallel=cp2", "cluster.devices_per_node=2")
    for overrides, own in (((windows,), False), (context, False), ((windows, *context), True)):
        made = transformer_config(settings(*overrides)[0])
        assert has_own_attention(made, engine=True, document_mask=False) is own
        assert has_own_attention(made, engine=True, document_mask=True)
        assert has_own_attention(made, engine=False, document_mask=False)
