"""backend.native: every option of the installed TorchTitan is accounted for, checked before the launch, and reaches it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from primus_app.backends.base import RankContext, load_backend
from primus_app.backends.native.check import flatten
from primus_app.backends.torchtitan.native.options import OPTIONS
from primus_app.backends.torchtitan.native.owned import OWNED, REFUSED, SECTIONS_OWNED
from primus_app.backends.torchtitan.native.rules import RULES
from primus_app.config.compose import Request
from primus_app.config.errors import Problem
from primus_app.config.kinds import schema_fields
from primus_app.config.load import load_config
from primus_app.data.prepared import PreparedData, SplitData
from primus_app.plan.plan import make_plan
from primus_app.run.directory import RunDirectory

DATA = PreparedData("mock", SplitData(), SplitData(), "0", None, 256, None)
GPU = "hardware=mi300x"


def refusals(*overrides: str) -> list[Problem]:
    config = load_config(Request(overrides), hardware="cpu")
    plan = make_plan(config, local_devices=1, local_hardware="cpu")
    assert plan.problems == ()
    return load_backend("torchtitan").check(config, plan.mesh)


def upstream_fields() -> Iterator[tuple[str, Any]]:
    """Every option of Trainer.Config by dotted name, with its annotation; the parts that we choose among are all walked."""
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
    from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC
    from torchtitan.trainer import Trainer

    chosen = {
        "activation_checkpoint": [FullAC.Config, SelectiveAC.Config, MemoryBudgetAC.Config],
        "loss": [ChunkedLossWrapper.Config, CrossEntropyLoss.Config],
        "loss.loss_fn": [CrossEntropyLoss.Config],
    }
    yield from _fields(Trainer.Config, "", chosen)


def _fields(section: Any, prefix: str, chosen: dict[str, list[Any]]) -> Iterator[tuple[str, Any]]:
    import dataclasses

    hints = get_type_hints(section, include_extras=False)
    for field in dataclasses.fields(section):
        name, hint = prefix + field.name, hints[field.name]
        default = None if field.default_factory is dataclasses.MISSING else field.default_factory()
        parts = chosen.get(name) or ([type(default)] if dataclasses.is_dataclass(default) else [])
        for part in parts:
            yield from _fields(part, f"{name}.", chosen)
        if not parts and not field.name.startswith("_"):
            yield name, get_args(hint)[0] if get_origin(hint) is Annotated else hint


def test_every_option_of_the_installed_torchtitan_is_accounted_for() -> None:
    upstream = dict(upstream_fields())
    assert len(upstream) > 100
    ours = {*OPTIONS, *OWNED, *REFUSED}
    owned_sections = {name for name in upstream if name.partition(".")[0] in SECTIONS_OWNED}
    assert set(upstream) - owned_sections - ours == set()
    assert ours - set(upstream) == set(), "these are gone from torchtitan"
    assert len(ours) == len(OPTIONS) + len(OWNED) + len(REFUSED)


def test_each_option_takes_what_torchtitans_field_takes() -> None:
    upstream = dict(upstream_fields())
    assert {name: option.type for name, option in OPTIONS.items()} == {name: upstream[name] for name in OPTIONS}


def test_rules_and_owners_are_there() -> None:
    assert {rule for option in OPTIONS.values() for rule in option.rules} == set(RULES)
    for name, owner in {**OWNED, **SECTIONS_OWNED}.items():
        first = owner.replace(",", " ").split()[0]
        assert first in schema_fields(), (name, owner)


BUNCHES = (
    ("training.recompute=selective", "parallel=cp2", "parallel.tp=2", "training.seq_len=256", "training.deterministic=true"),
    ("parallel.pp=1",),
)
"""Settings under which the values below have an effect."""

VALUES: tuple[dict[str, Any], ...] = (
    {
        "profiler.enable_profiling": True,
        "profiler.save_traces_folder": "traces",
        "profiler.profile_freq": 20,
        "profiler.profiler_active": 2,
        "profiler.profiler_warmup": 2,
        "profiler.profiler_repeat": 3,
        "profiler.profiler_skip_first": 1,
        "profiler.profiler_skip_first_wait": 1,
        "profiler.enable_memory_snapshot": True,
        "profiler.memory_snapshot_freq": 7,
        "profiler.save_memory_snapshot_folder": "memory",
        "profiler.memory_snapshot_max_entries": 10,
        "optimizer.implementation": "foreach",
        "training.enable_cpu_offload": True,
        "training.disable_cuda_graphs": False,
        "training.gc_freq": 7,
        "training.gc_debug": True,
        "parallelism.fsdp_reshard_after_forward": "never",
        "parallelism.context_parallel_load_balancer": None,
        "checkpoint.enable_first_step_checkpoint": True,
        "activation_checkpoint.preserve_rng_state": False,
        "activation_checkpoint.determinism_check": "none",
        "activation_checkpoint.debug": True,
        "activation_checkpoint.force_recompute_mm_shapes_by_fqns": ["a", "b"],
        "compile.enable": True,
        "compile.components": ["model"],
        "compile.backend": "aot_eager",
        "compile.enable_async_tensor_parallel": True,
        "comm.init_timeout_seconds": 77,
        "comm.train_timeout_seconds": 78,
        "comm.trace_buf_size": 0,
        "comm.mode": "torchcomms",
        "debug.deterministic_warn_only": True,
        "debug.detect_anomaly": True,
        "loss.num_chunks": 2,
    },
    {
        "compile.enable": True,
        "activation_checkpoint.memory_budget": 0.25,
        "activation_checkpoint.visualize_memory_budget_pareto": True,
        "parallelism.spmd_backend": "spmd_types",
        "debug.spmd_typechecking": True,
    },
)
ONLY_ON_A_GPU = {"parallelism.enable_fsdp_symm_mem"}
"""TorchTitan's own check of it asks the device, so this machine cannot try it."""


def typed(values: dict[str, Any]) -> list[str]:
    return [f"backend.native.{name}={json.dumps(value).replace(chr(34), '')}" for name, value in values.items()]


@pytest.mark.parametrize(("settings", "values"), list(zip(BUNCHES, VALUES, strict=True)), ids=["most", "budget"])
def test_an_option_reaches_torchtitan(settings: tuple[str, ...], values: dict[str, Any], tmp_path: Path) -> None:
    """The values as TorchTitan's own record shows them, which is what native/torchtitan.json holds."""
    from primus_app.backends.torchtitan.translate import native_record, translate

    overrides = (GPU, *settings, *typed(values))
    assert refusals(*overrides) == []
    config = load_config(Request(overrides), hardware="cpu")
    plan = make_plan(config, local_devices=1, local_hardware="cpu")
    assert plan.mesh is not None
    assert plan.batch is not None
    context = RankContext(config, RunDirectory(tmp_path), 0, DATA, rank=0, local_rank=0, world_size=1)
    record = flatten(native_record(translate(context, plan.mesh, plan.batch, plan.stages, cpu=True)))
    assert {name: record[name] for name in values} == values


def test_every_option_is_tried() -> None:
    assert {name for values in VALUES for name in values} | ONLY_ON_A_GPU == set(OPTIONS)


WRONG: list[tuple[str, str, str]] = [
    ("compile.enabel=true", "no such option", "did you mean backend.native.compile.enable?"),
    ("init_timeout_second=5", "no such option", "did you mean backend.native.comm.init_timeout_seconds?"),
    ("zzz=1", "no such option", "docs/native-options.md"),
    ("compile=1", "it is a section", "compile.enable, compile.components"),
    ("compile.enable=1", "1 is not allowed; it takes true or false", ""),
    ("comm.init_timeout_seconds=soon", "'soon' is not allowed; it takes a whole number", ""),
    ("comm.init_timeout_seconds=0", "must be above 0", "above 0"),
    ("optimizer.implementation=fuse", "it takes one of for-loop, foreach, fused", "optimizer.implementation=fused"),
    ("training.seq_len=64", "is set by our own training.seq_len", "write training.seq_len=64"),
    ("optimizer.lr=1e-4", "is set by our own optimizer.lr", "write optimizer.lr=0.0001"),
    ("parallelism.tensor_parallel_degree=2", "is set by our own parallel.tp", "write parallel.tp=2"),
    ("parallelism.pipeline_parallel_schedule=GPipe", "is set by our own parallel.schedule", ""),
    ("checkpoint.folder=x", "would hide the checkpoints", "leave it out"),
    ("checkpoint.keep_latest_k=3", "is set by our own checkpoint.keep", "write checkpoint.keep=3"),
    ("lr_scheduler.decay_ratio=0.5", "is set by our own optimizer.schedule", ""),
    ("dataloader.num_workers=2", "is set by our own data", ""),
    ("validator.dataloader.dataset=x", "the validation split of data is evaluated", "leave it out"),
    ("debug.seed=1", "is set by our own training.seed", "write training.seed=1"),
    ("debug.moe_force_load_balance=true", "is set by our own training.load_balancing", ""),
    ("training.mixed_precision_param=bfloat16", "is set by our own precision", "set precision"),
    ("optimizer.implementation=fused_opt_states_bf16", "another loss curve", "foreach"),
    ("override.imports=[a.b]", "the loss curve", "leave it out"),
    ("metrics.enable_wandb=true", "has no effect", "leave it out"),
    ("comm.mode=fake_backend", "has no use on a CPU", "leave it out"),
    ("comm.trace_buf_size=1", "has no use on a CPU", "leave it out"),
    ("training.enable_cpu_offload=true", "has no use on a CPU", "leave it out"),
    ("training.disable_cuda_graphs=false", "has no use on a CPU", "leave it out"),
    ("profiler.enable_memory_snapshot=true", "has no use on a CPU", "leave it out"),
    ("profiler.profile_freq=20", "has no effect without profiling", "profiler.enable_profiling=true"),
    ("compile.backend=inductor", "has no effect without compile.enable=true", "compile.enable=true"),
    ("activation_checkpoint.debug=true", "has no effect with training.recompute=none", "training.recompute=full"),
    ("activation_checkpoint.memory_budget=0.5", "needs a compiled model", "compile.enable=true"),
    ("debug.deterministic_warn_only=true", "has no effect with training.deterministic=false", "training.deterministic=true"),
    ("debug.spmd_typechecking=true", "has no effect without spmd_backend=spmd_types", "spmd_backend=spmd_types"),
    ("parallelism.fsdp_reshard_after_forward=never", "nothing is sharded", "parallel=fsdp"),
    ("parallelism.context_parallel_load_balancer=ptrr", "has no effect with parallel.cp=1", "leave it out"),
    ("parallelism.spmd_backend=full_dtensor", "twice the loss", "partial_dtensor"),
]


@pytest.mark.parametrize(("option", "what", "fix"), WRONG, ids=[option for option, _, _ in WRONG])
def test_a_wrong_option_is_refused_by_name(option: str, what: str, fix: str) -> None:
    (problem,) = refusals(f"backend.native.{option}")
    assert problem.where == f"backend.native.{option.partition('=')[0]}"
    assert what in problem.what
    assert fix in " ".join(problem.fix)


ELSEWHERE_WRONG = [
    ((GPU, "parallel=pp2", "parallel.schedule=zero_bubble"), "loss.num_chunks=2", "computed whole"),
    ((GPU, "parallel=pp2"), "training.disable_cuda_graphs=false", "neither a pipeline"),
    ((GPU,), "comm.mode=fake_backend", "trains nothing"),
    ((GPU,), "compile.enable_async_tensor_parallel=true", "parallel.tp=1"),
    ((GPU,), "profiler.memory_snapshot_freq=2", "without memory snapshots"),
    (("checkpoint=none",), "checkpoint.enable_first_step_checkpoint=true", "checkpoint.every=0"),
    (("training.recompute=full",), "activation_checkpoint.force_recompute_mm_shapes_by_fqns=[a]", "selective only"),
    (("training.recompute=full",), "activation_checkpoint.determinism_check=maybe", "one of default, none"),
    (("parallel=cp2", "training.seq_len=256", GPU), "parallelism.context_parallel_load_balancer=head", "one of headtail, ptrr, null"),
]


@pytest.mark.parametrize(("settings", "option", "what"), ELSEWHERE_WRONG, ids=[option for _, option, _ in ELSEWHERE_WRONG])
def test_what_other_settings_leave_without_effect_is_refused(settings: tuple[str, ...], option: str, what: str) -> None:
    (problem,) = refusals(*settings, f"backend.native.{option}")
    assert what in str(problem)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("profiler.enable_profiling=true", "profiler.profile_freq=3"), "profiler_active + profiler_warmup = 4"),
        (("profiler.enable_profiling=true", "profiler.save_traces_folder=/tmp/x"), "not a folder under the run directory"),
        (("profiler.enable_profiling=true", "profiler.save_traces_folder=a/../../x"), "not a folder under the run directory"),
        (("compile.enable=true", "compile.components=[model,optimizer]"), "no component optimizer"),
        (("compile.enable=true", "activation_checkpoint.memory_budget=1.5"), "between 0 and 1"),
        (("compile.enable=true", "activation_checkpoint.visualize_memory_budget_pareto=true"), "without a memory budget"),
    ],
)
def test_options_that_contradict_each_other(options: tuple[str, ...], what: str) -> None:
    (problem,) = refusals(*(f"backend.native.{option}" for option in options))
    assert what in str(problem)


def test_all_wrong_options_at_once() -> None:
    assert len(refusals("backend.native.compile.enabel=true", "backend.native.debug.seed=1", "backend.native.comm.mode=fake_backend")) == 3


@pytest.mark.parametrize(
    "typed",
    ["backend.native.debug.detect_anomaly=true", "+backend.native.debug.detect_anomaly=true", "++backend.native.debug.detect_anomaly=true"],
)
def test_an_option_is_typed_with_or_without_plus(typed: str) -> None:
    assert refusals(typed) == []
    assert flatten(load_config(Request((typed,)), hardware="cpu").backend.native) == {"debug.detect_anomaly": True}


@pytest.mark.parametrize("typed", ["backend.native={debug:{detect_anomaly:true}}", "backend.native={debug.detect_anomaly:true}"])
def test_options_are_typed_as_a_section(typed: str) -> None:
    assert flatten(load_config(Request((typed,)), hardware="cpu").backend.native) == {"debug.detect_anomaly": True}


def test_an_option_is_how_not_what() -> None:
    """It may change between two starts of one run."""
    from primus_app.run.what import differences, what_of

    plain, compiled = (load_config(Request(typed), hardware="cpu") for typed in ((), ("backend.native.compile.enable=true",)))
    assert differences(what_of(plain), what_of(compiled)) == []


def test_checking_imports_neither_torch_nor_torchtitan() -> None:
    code = (
        "import sys; from primus_app.backends.base import load_backend; from primus_app.config.load import load_config; "
        "from primus_app.config.compose import Request; "
        "config = load_config(Request(('backend.native.compile.enabel=true',)), hardware='cpu'); "
        "assert len(load_backend('torchtitan').check(config, None)) == 1; sys.exit('torch' in sys.modules or 'torchtitan' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=False).returncode == 0
