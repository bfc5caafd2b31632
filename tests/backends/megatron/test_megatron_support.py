"""What megatron-core would get wrong is refused by name, with the way out; what it can do is not."""

import configparser
from pathlib import Path

import pytest

import primus_app
from primus_app.backends.base import load_backend
from primus_app.backends.megatron.support import check_support
from primus_app.backends.megatron.versions import NEEDED
from primus_app.config.compose import Request
from primus_app.config.errors import Problem
from primus_app.config.load import load_config
from primus_app.plan.plan import make_plan

ROOT = Path(primus_app.__file__).parents[1]


def refused(*overrides: str, devices: int = 1) -> list[Problem]:
    config = load_config(Request(("backend=megatron", *overrides)), hardware="cpu")
    plan = make_plan(config, local_devices=devices)
    assert plan.problems == (), plan.problems
    return check_support(config, plan.mesh)


TINY = ("model=deepseek_v3_tiny",)
WRONG = {
    "experts whose gradients are not summed over tp": (
        ("model=qwen3_moe_tiny", "parallel=tp2", "cluster.devices_per_node=2"),
        "parallel.etp",
        "parallel.etp=2",
    ),
    "experts under tp without a divided sequence": (
        ("model=qwen3_moe_tiny", "parallel=tp2", "parallel.etp=2", "parallel.sequence_parallel=false", "cluster.devices_per_node=2"),
        "parallel.sequence_parallel",
        "leave it out",
    ),
    "a schedule that it has not": (
        ("parallel=pp2", "parallel.schedule=gpipe", "cluster.devices_per_node=2"),
        "parallel.schedule",
        "parallel.schedule=1f1b or interleaved",
    ),
    "groups of experts scored by another number": ((*TINY, "model.moe.topk_group=4"), "model.moe.topk_group", "model.moe.topk_group=2"),
    "weights of chosen experts that are not scaled": (
        (*TINY, "model.moe.norm_topk_prob=false"),
        "model.moe.norm_topk_prob",
        "model.moe.norm_topk_prob=true",
    ),
    "positions stretched by other constants": (
        ("model=llama3_1_8b", "model.rope_scaling.low_freq_factor=2.0"),
        "model.rope_scaling.low_freq_factor",
        "model.rope_scaling.low_freq_factor=1",
    ),
    "sharding that nothing does": (
        ("parallel=fsdp", "parallel.distributed_optimizer=false", "cluster.devices_per_node=2"),
        "parallel.distributed_optimizer",
        "leave it out",
    ),
    "a distributed optimizer with nobody to share with": (
        ("parallel=dp", "parallel.distributed_optimizer=true", "cluster.devices_per_node=2"),
        "parallel.distributed_optimizer",
        "leave it out",
    ),
    "replicas that do not divide the ranks of the same experts": (
        (
            "model=qwen3_moe_tiny",
            "parallel=ep2",
            "parallel.ep=4",
            "parallel.dp_replicate=2",
            "parallel.dp_shard=2",
            "cluster.devices_per_node=4",
        ),
        "parallel.dp_replicate",
        "parallel.dp_replicate=1 parallel.dp_shard=auto",
    ),
    "a balance loss of several samples at a time in Megatron-LM's own trainer": (
        ("model=qwen3_moe_tiny", "training.load_balancing=aux_loss", "backend.runner=pretrain", "training.micro_batch_size=2"),
        "training.load_balancing",
        "training.micro_batch_size=1",
    ),
    "a balance loss of divided sequences in Megatron-LM's own trainer": (
        (
            "model=qwen3_moe_tiny",
            "training.load_balancing=aux_loss",
            "backend.runner=pretrain",
            "training.micro_batch_size=1",
            "parallel=cp2",
            "cluster.devices_per_node=2",
        ),
        "training.load_balancing",
        "parallel.tp=1 parallel.cp=1",
    ),
    "an option": (("+backend.native.transformer.tp_comm_overlap=true",), "backend.native.transformer.tp_comm_overlap", "leave it out"),
    "experts with biases that ranks share": (
        ("model=gpt_oss_tiny", "parallel=tp2", "parallel.etp=2", "cluster.devices_per_node=2"),
        "parallel.etp",
        "parallel.etp=1 parallel.ep=2 gives each rank whole experts",
    ),
    "experts with biases under tp that no ep divides": (
        ("model=gpt_oss_tiny", "parallel=tp2", "cluster.devices_per_node=2"),
        "parallel.etp",
        "parallel.ep=2",
    ),
    "gpt_oss in Megatron-LM's trainer": (
        ("model=gpt_oss_tiny", "model.rope_scaling=null", "backend.runner=pretrain"),
        "model.family",
        "backend.runner=core has no such limit",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_would_go_wrong_is_refused(case: str) -> None:
    overrides, where, fix = WRONG[case]
    found = refused(*overrides)
    assert [problem.where for problem in found] == [where]
    assert found[0].fix[0] == fix


@pytest.mark.parametrize(
    "overrides",
    [
        ("model=llama3_1_8b",),
        ("model=qwen2_5_7b",),
        ("model=qwen3_8b",),
        ("model=mixtral_8x7b",),
        ("model=qwen3_30b_a3b",),
        ("model=deepseek_v2_lite",),
        ("model=deepseek_v3",),
        ("model=gpt_oss_20b",),
        ("model=gpt_oss_120b",),
        ("parallel=fsdp", "cluster.devices_per_node=4"),
        ("parallel=dp", "cluster.devices_per_node=4"),
        ("parallel=cp2", "parallel.distributed_optimizer=true", "cluster.devices_per_node=2"),
        ("model=qwen3_moe_tiny", "parallel=tp2", "parallel.ep=2", "cluster.devices_per_node=2"),
    ],
)
def test_what_it_can_do_is_not_refused(overrides: tuple[str, ...]) -> None:
    assert refused(*overrides) == []


def test_a_version_that_was_not_tested_is_refused(tmp_path: Path) -> None:
    core = tmp_path / "megatron" / "core"
    for name in NEEDED:
        (core.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (core.parent / name).touch()
    (core / "package_info.py").write_text("MAJOR = 0\nMINOR = 14\nPATCH = 2\n")
    config = load_config(Request(("backend=megatron", f"backend.megatron_path='{tmp_path}'")), hardware="cpu")
    found = load_backend("megatron").check_machine(config)
    assert [problem.where for problem in found] == ["backend"]
    assert "0.14.2" in found[0].what


def test_the_installed_version_was_tested() -> None:
    assert load_backend("megatron").check_machine(load_config(Request(("backend=megatron",)), hardware="cpu")) == []


def test_what_its_checkpoints_hang_without_is_asked_for() -> None:
    """dist_checkpointing waits for ever for a writer that has failed for want of psutil, which megatron-core does not ask for."""
    options = configparser.ConfigParser()
    options.read(ROOT / "setup.cfg")
    assert "psutil" in options["options"]["install_requires"].split()


def test_patches_that_a_cpu_needs_are_not_left_out() -> None:
    config = load_config(Request(("backend=megatron", "backend.patches=none")), hardware="cpu")
    found = load_backend("megatron").check(config, None)
    assert [problem.where for problem in found] == ["backend.patches"]
    assert "megatron-cpu-device" in found[0].what


def test_the_other_engine_refuses_what_is_megatrons() -> None:
    config = load_config(Request(("parallel.distributed_optimizer=true",)), hardware="cpu")
    found = load_backend("torchtitan").check(config, None)
    assert [problem.where for problem in found] == ["parallel.distributed_optimizer"]
