"""backend.native on megatron-core: every field of its configurations is accounted for, checked before the launch, and reaches it."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_app.backends.base import load_backend
from primus_app.backends.megatron.native.check import options_of
from primus_app.backends.megatron.native.fields import PACKAGE, as_json, fields_of, megatron_classes, recorded_fields, type_of
from primus_app.backends.megatron.native.options import OPTIONS
from primus_app.backends.megatron.native.owned import OWNED
from primus_app.backends.megatron.native.refused import REFUSED
from primus_app.backends.megatron.native.rules import RULES
from primus_app.backends.megatron.recorded import recorded_versions
from primus_app.backends.megatron.translate import data_parallel_settings, optimizer_settings, transformer_settings
from primus_app.backends.megatron.versions import TESTED
from primus_app.config.compose import Request
from primus_app.config.errors import Problem
from primus_app.config.kinds import schema_fields
from primus_app.config.load import load_config
from primus_app.config.schema import Config
from primus_app.plan.plan import Plan, make_plan

ROOT = Path(__file__).parents[3]
GPU = "hardware=mi300x"
TWO = "cluster.devices_per_node=2"


def planned(*overrides: str) -> tuple[Config, Plan]:
    config = load_config(Request(("backend=megatron", *overrides)), hardware="cpu")
    plan = make_plan(config, local_devices=8 if GPU in overrides else 1)
    assert plan.problems == (), plan.problems
    return config, plan


@cache
def _base(settings: tuple[str, ...]) -> tuple[Config, Plan]:
    return planned(*settings)


def refused(settings: tuple[str, ...], option: str) -> list[Problem]:
    """As refusals, without composing anew for one more option."""
    config, plan = _base(settings)
    name, _, value = option.partition("=")
    other = config.model_copy(update={"backend": config.backend.model_copy(update={"native": {name: yaml.safe_load(value)}})})
    return load_backend("megatron").check(other, plan.mesh)


def refusals(*overrides: str) -> list[Problem]:
    config, plan = planned(*overrides)
    return load_backend("megatron").check(config, plan.mesh)


def test_every_field_of_the_recorded_versions_is_accounted_for() -> None:
    versions = recorded_versions(PACKAGE)
    assert {tuple(int(part) for part in version.split(".")[:2]) for version in versions} == set(TESTED["core"])
    upstream = {name for version in versions for name in recorded_fields(version)}
    assert len(upstream) > 300
    ours = {*OPTIONS, *OWNED, *REFUSED}
    assert upstream - ours == set()
    assert ours - upstream == set(), "these are gone from megatron-core"
    assert len(ours) == len(OPTIONS) + len(OWNED) + len(REFUSED)


def test_the_record_is_of_the_installed_megatron() -> None:
    from megatron.core import __version__ as version

    assert version in recorded_versions(PACKAGE), "run ./scripts/record-megatron-fields"
    found = fields_of(megatron_classes())
    assert found == recorded_fields(version)
    assert json.loads(as_json(found)) == {name: list(takes) for name, takes in found.items()}


def test_types_are_those_of_the_fields() -> None:
    """As the classes of 0.16.1 have them: bool, Optional[int], Optional[Literal], Union[str, list[str]], an enumeration."""
    facts = recorded_fields("0.16.1")
    assert type_of(facts["ddp.overlap_grad_reduce"]) is bool
    assert type_of(facts["ddp.bucket_size"]) == int | None
    assert facts["transformer.recompute_method"] == ("'uniform'", "'block'", "null")
    assert type_of(facts["transformer.cp_comm_type"]) == str | list[str] | None
    assert "'flash'" in facts["transformer.attention_backend"]


def test_rules_and_owners_are_there() -> None:
    assert {rule for option in OPTIONS.values() for rule in option.rules} == set(RULES)
    for name, owner in OWNED.items():
        first = owner.removeprefix("backend.native.").split()[0]
        assert first in schema_fields() or first in OPTIONS, (name, owner)


BUNCHES: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("parallel=fsdp", "cluster.devices_per_node=8", "precision=bf16", "training.recompute=selective"),
        {
            "ddp.overlap_grad_reduce": True,
            "ddp.overlap_param_gather": False,
            "ddp.bucket_size": 100_000,
            "ddp.check_for_nan_in_grad": True,
            "ddp.pad_buckets_for_high_nccl_busbw": True,
            "ddp.nccl_ub": True,
            "ddp.disable_symmetric_registration": True,
            "transformer.recompute_modules": ["mlp"],
            "transformer.cross_entropy_loss_fusion": True,
            "transformer.cross_entropy_fusion_impl": "te",
            "transformer.bias_activation_fusion": False,
            "transformer.bias_dropout_fusion": False,
            "transformer.gradient_accumulation_fusion": True,
            "transformer.apply_rope_fusion": True,
            "transformer.fused_single_qkv_rope": True,
            "transformer.attention_backend": "flash",
            "transformer.disable_bf16_reduced_precision_matmul": True,
            "transformer.fine_grained_activation_offloading": True,
            "transformer.offload_modules": ["core_attn", "attn_proj"],
            "transformer.min_offloaded_tensor_size": 10,
        },
    ),
    (
        ("parallel=pp2", "parallel.schedule=interleaved", "parallel.vpp=2", "parallel.dp_shard=2", "cluster.devices_per_node=4"),
        {
            "ddp.overlap_param_gather": True,
            "ddp.align_param_gather": False,
            "transformer.microbatch_group_size_per_vp_stage": 2,
            "transformer.overlap_p2p_comm_warmup_flush": True,
            "transformer.deallocate_pipeline_outputs": False,
        },
    ),
    (
        ("parallel=pp2", TWO),
        {
            "transformer.batch_p2p_sync": False,
            "transformer.gradient_accumulation_fusion": True,
            "transformer.defer_embedding_wgrad_compute": True,
            "transformer.wgrad_deferral_limit": 1,
        },
    ),
    (
        ("parallel=tp2", TWO, "parallel.sequence_parallel=false", "training.recompute=full"),
        {
            "transformer.recompute_method": "block",
            "transformer.recompute_num_layers": 2,
            "transformer.distribute_saved_activations": True,
            "transformer.symmetric_ar_type": "two_shot",
        },
    ),
    (("parallel=tp2", TWO), {"transformer.clone_scatter_output_in_embedding": False}),
    (("parallel=cp2", TWO), {"transformer.cp_comm_type": "all_gather"}),
    (
        ("model=deepseek_v3_tiny",),
        {
            "transformer.moe_token_dispatcher_type": "alltoall",
            "transformer.moe_permute_fusion": True,
            "transformer.moe_router_fusion": True,
            "transformer.moe_shared_expert_overlap": True,
        },
    ),
    (
        ("model=qwen3_moe_tiny",),
        {
            "transformer.moe_token_dispatcher_type": "flex",
            "transformer.moe_flex_dispatcher_backend": "deepep",
            "transformer.moe_deepep_num_sms": 10,
            "transformer.moe_hybridep_num_sms": 10,
        },
    ),
    (
        (),
        {
            "transformer.cpu_offloading": True,
            "transformer.cpu_offloading_num_layers": 2,
            "transformer.cpu_offloading_activations": True,
            "transformer.cpu_offloading_weights": True,
            "transformer.cpu_offloading_double_buffering": True,
        },
    ),
)
"""Settings, and values that have an effect under them on an accelerator."""
FROM_0_17 = {"transformer.fused_residual_rmsnorm", "transformer.cpu_offloading_retain_pinned_cpu_buffers"}


def typed(values: dict[str, Any]) -> list[str]:
    return [f"backend.native.{name}={json.dumps(value).replace(chr(34), '')}" for name, value in values.items()]


@pytest.mark.parametrize(("settings", "values"), BUNCHES, ids=[next(iter(values)) for _, values in BUNCHES])
def test_an_option_reaches_megatron(settings: tuple[str, ...], values: dict[str, Any]) -> None:
    """What its own classes are made with, which is what native/megatron.json holds."""
    overrides = (GPU, *settings, *typed(values))
    assert refusals(*overrides) == []
    config, plan = planned(*overrides)
    assert plan.mesh is not None
    made = {
        "transformer": transformer_settings(config, plan.mesh, plan.stages, cpu=False, engine=True),
        "ddp": data_parallel_settings(config, plan.mesh, cpu=False),
    }
    for name, value in values.items():
        section, _, field = name.partition(".")
        assert made[section][field] == value, name


def test_every_option_is_tried() -> None:
    assert {name for _, values in BUNCHES for name in values} | FROM_0_17 == set(OPTIONS)
    assert set(options_of("0.17.0").passed) - set(options_of("0.16.1").passed) == FROM_0_17


FSDP = ("parallel=fsdp", TWO)
WINDOWS = ("parallel=cp2", TWO, GPU, "model=qwen3_tiny", "model.sliding_window=16")
WRONG: list[tuple[tuple[str, ...], str, str, str]] = [
    (FSDP, "ddp.overlap_grad_redcue=true", "has no such option", "did you mean backend.native.ddp.overlap_grad_reduce?"),
    ((), "bucket_size=1", "has no such option", "did you mean backend.native.ddp.bucket_size?"),
    ((), "training.gc_freq=1", "has no such option", "docs/native-options.md"),
    ((), "ddp=1", "it is a section", "ddp.overlap_grad_reduce"),
    (FSDP, "ddp.overlap_grad_reduce=1", "1 is not allowed; it takes true or false", ""),
    ((), "ddp.bucket_size=big", "'big' is not allowed; it takes a whole number or null", ""),
    ((GPU,), "transformer.attention_backend=flush", "it takes one of flash, fused", "attention_backend=flash"),
    ((), "transformer.num_layers=3", "is set by our own model.num_hidden_layers", "write model.num_hidden_layers=3"),
    ((), "optimizer.lr=0.1", "is set by our own optimizer.lr", "write optimizer.lr=0.1"),
    ((), "optimizer.overlap_param_gather=true", "is set by our own backend.native.ddp.overlap_param_gather", ""),
    ((), "ddp.use_distributed_optimizer=true", "is set by our own parallel.distributed_optimizer", ""),
    ((), "transformer.fp8=hybrid", "is set by our own precision", "set precision"),
    ((), "transformer.tp_comm_overlap=true", "backend.runner=pretrain", "leave it out"),
    ((), "transformer.hidden_dropout=0.1", "the loss curve", "leave it out"),
    ((), "transformer.init_method=a", "cannot be typed", "leave it out"),
    ((), "ddp.average_in_collective=true", "loss per token", "leave it out"),
    ((), "transformer.gradient_accumulation_fusion=true", "has no use on a CPU", "leave it out"),
    ((), "transformer.cross_entropy_loss_fusion=true", "rounds the loss's gradients", "leave it out"),
    ((), "ddp.overlap_grad_reduce=true", "one data parallel rank", "leave it out"),
    (FSDP, "ddp.overlap_param_gather=true", "without overlap_grad_reduce", "ddp.overlap_grad_reduce=true"),
    (FSDP, "ddp.bucket_size=1000", "without overlap_grad_reduce", "ddp.overlap_grad_reduce=true"),
    (("parallel=dp", TWO, GPU), "ddp.overlap_param_gather=true", "without the distributed optimizer", "parallel=fsdp"),
    ((*FSDP, GPU), "ddp.align_param_gather=true", "interleaved only", "leave it out"),
    ((*FSDP, GPU), "ddp.bucket_size=0", "above 0", "above 0"),
    ((), "transformer.recompute_modules=[mlp]", "training.recompute=selective only", "training.recompute=selective"),
    (("training.recompute=selective",), "transformer.recompute_modules=[mpl]", "there is no mpl", "core_attn"),
    (("training.recompute=selective",), "transformer.recompute_modules=[moe]", "no experts", "leave them out"),
    (("training.recompute=selective",), "transformer.recompute_modules=[mla_up_proj]", "latent attention", "leave it out"),
    (("training.recompute=selective",), "transformer.recompute_modules=[layernorm]", "asks Transformer Engine", "core_attn"),
    (("training.recompute=full",), "transformer.recompute_num_layers=99", "not from 1 to the model's", "give 1 to"),
    (("training.recompute=full",), "transformer.recompute_num_layers=null", "not from 1 to the model's", "give 1 to"),
    (("training.recompute=full", "training.recompute_layers=2"), "transformer.recompute_method=block", "in other words", "leave one"),
    (("training.recompute=full",), "transformer.recompute_method=null", "null is not allowed", "uniform or block"),
    ((GPU,), "transformer.cpu_offloading=true", "without a number of layers", "cpu_offloading_num_layers=1"),
    ((), "transformer.moe_token_dispatcher_type=allgather", "without experts", "leave it out"),
    (("model=qwen3_moe_tiny",), "transformer.moe_token_dispatcher_type=flex", "for accelerators", "alltoall or allgather"),
    (("parallel=cp2", TWO, GPU), "transformer.cp_comm_type=[p2p]", "1 words for", "one for each layer"),
    (
        WINDOWS,
        "transformer.cp_comm_type=a2a",
        "the attention is torch's",
        "leave it out",
    ),
    (("parallel=cp2", TWO, GPU), "transformer.cp_comm_type=p3p", "there is no p3p", "p2p"),
]


@pytest.mark.parametrize(("settings", "option", "what", "fix"), WRONG, ids=[option for _, option, _, _ in WRONG])
def test_a_wrong_option_is_refused_by_name(settings: tuple[str, ...], option: str, what: str, fix: str) -> None:
    (problem,) = refused(settings, option)
    assert problem.where == f"backend.native.{option.partition('=')[0]}"
    assert what in problem.what
    assert fix in " ".join(problem.fix)


@pytest.mark.parametrize(("size", "legal"), [(1, False), (2, True), (3, False), (4, True), (5, False)])
def test_a_group_of_micro_batches_is_one_that_the_schedule_takes(size: int, legal: bool) -> None:
    """Four micro batches on two stages: megatron-core takes from 2 to 4, and may leave over none or at least 2 (its schedules.py)."""
    settings = ("parallel=pp2", "parallel.schedule=interleaved", "parallel.vpp=2", TWO)
    batch = ("training.global_batch_size=4", "training.micro_batch_size=1")
    found = refused((*settings, *batch), f"transformer.microbatch_group_size_per_vp_stage={size}")
    assert (found == []) is legal


def test_a_section_is_offered_where_only_its_name_is_near() -> None:
    (problem,) = refused((), "dpd.x=3")
    assert "backend.native.ddp." in problem.fix[0]


def test_all_wrong_options_at_once() -> None:
    assert len(refusals("backend.native.ddp.bucket=1", "backend.native.optimizer.lr=1", "backend.native.transformer.fp8=hybrid")) == 3


def test_communication_overlaps_on_accelerators_and_not_on_a_cpu() -> None:
    """As Megatron-LM's recipes have it; the schedules of an interleaved pipeline gather at the same time on all stages."""
    overlaps = ("overlap_grad_reduce", "overlap_param_gather", "align_param_gather")
    interleaved = ("parallel=pp2", "parallel.schedule=interleaved", "parallel.vpp=2", "parallel.dp_shard=2", "cluster.devices_per_node=4")
    expected = {(): (False,) * 3, ("parallel=dp", TWO): (True, False, False), FSDP: (True, True, False), interleaved: (True,) * 3}
    for layout, wanted in expected.items():
        config, plan = planned(*layout)
        assert plan.mesh is not None
        found = data_parallel_settings(config, plan.mesh, cpu=False)
        assert tuple(found[name] for name in overlaps) == wanted, layout
        assert optimizer_settings(config, plan.mesh, cpu=False)["overlap_param_gather"] is wanted[1]
        assert not any(data_parallel_settings(config, plan.mesh, cpu=True)[name] for name in overlaps)


def test_without_overlapping_sums_weights_are_not_gathered_early() -> None:
    config, plan = planned(*FSDP, "backend.native.ddp.overlap_grad_reduce=false")
    assert plan.mesh is not None
    assert data_parallel_settings(config, plan.mesh, cpu=False)["overlap_param_gather"] is False


def test_checking_imports_neither_torch_nor_megatron() -> None:
    code = (
        "import sys; from primus_app.backends.base import load_backend; from primus_app.config.load import load_config; "
        "from primus_app.config.compose import Request; "
        "request = ('backend=megatron', 'backend.runner={}', 'backend.native.overlap=true'); "
        "configs = [load_config(Request(tuple(each.format(name) for each in request)), hardware='cpu') for name in ('core', 'pretrain')]; "
        "assert [len(load_backend('megatron').check(config, None)) for config in configs] == [1, 1]; "
        "sys.exit('torch' in sys.modules or 'megatron.core' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
