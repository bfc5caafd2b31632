"""When an option of TorchTitan would do nothing or fail: one function a rule, each saying why and what to do, or nothing."""

from importlib.metadata import PackageNotFoundError, version

from primus_app.backends.native.options import Case, Rule, Verdict
from primus_app.backends.native.rules import ABOVE_0, ACCELERATOR, CONTEXT, FROM_0, LEAVE_OUT, TENSOR, needs, one_of


def _is_compiled(case: Case) -> bool:
    return bool(case.also("compile.enable", False))


def _model_is_compiled(case: Case) -> bool:
    return _is_compiled(case) and "model" in case.also("compile.components", ["model", "loss"])


def _is_sharded(case: Case) -> bool:
    return case.mesh is None or case.mesh.dp_shard * case.mesh.cp > 1


def _graphs(case: Case) -> Verdict:
    parallel = case.config.parallel
    if case.value or (parallel.pp == 1 and parallel.ep == 1):
        return None
    return "CUDA graphs hold neither a pipeline nor expert parallelism in TorchTitan 0.3.0", LEAVE_OUT


def _profile_window(case: Case) -> Verdict:
    every, active = case.also("profiler.profile_freq", 10), case.also("profiler.profiler_active", 1)
    least = active + case.also("profiler.profiler_warmup", 3)
    if not case.value or every >= least:
        return None
    name = "backend.native.profiler.profile_freq"
    return f"profile_freq {every} is less than profiler_active + profiler_warmup = {least}", f"{name}={least} or more"


def _spmd(case: Case) -> Verdict:
    if case.value == "full_dtensor":
        return "full_dtensor reports twice the loss under DDP", "backend.native.parallelism.spmd_backend=partial_dtensor, the default"
    if case.value == "spmd_types" and case.mesh is not None and case.mesh.world > 1 and _torch_version() < (2, 14):
        return "spmd_types needs a torch newer than 2.13 for more than one rank", LEAVE_OUT
    return None


def _torch_version() -> tuple[int, ...]:
    """Asked of the installed package, since importing torch takes seconds; a torch without metadata counts as new."""
    try:
        return tuple(int(part) for part in version("torch").split("+")[0].split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return (99, 0)


def _components(case: Case) -> Verdict:
    unknown = [name for name in case.value if name not in ("model", "loss")]
    return (f"there is no component {', '.join(map(str, unknown))}", "components are model and loss") if unknown else None


def _inside(case: Case) -> Verdict:
    parts = str(case.value).split("/")
    if case.value and parts[0] and ".." not in parts:
        return None
    return f"{case.value!r} is not a folder under the run directory", "give a relative path without .."


RULES: dict[str, Rule] = {
    "above_0": ABOVE_0,
    "from_0": FROM_0,
    "share": needs(lambda case: 0 <= case.value <= 1, "must lie between 0 and 1", "give a number from 0 to 1"),
    "inside": _inside,
    "accelerator": ACCELERATOR,
    "profiling": needs(
        lambda case: bool(case.also("profiler.enable_profiling", False) or case.also("profiler.enable_memory_snapshot", False)),
        "has no effect without profiling",
        "add backend.native.profiler.enable_profiling=true",
    ),
    "snapshot": needs(
        lambda case: bool(case.also("profiler.enable_memory_snapshot", False)),
        "has no effect without memory snapshots",
        "add backend.native.profiler.enable_memory_snapshot=true",
    ),
    "profile_window": _profile_window,
    "float32_moments": needs(
        lambda case: case.value != "fused_opt_states_bf16",
        "fused_opt_states_bf16 keeps the moments in bfloat16, which is another loss curve; precision.optimizer_states says fp32",
        "one of fused, foreach, for-loop",
    ),
    "sharded": needs(_is_sharded, "has no effect: nothing is sharded (dp_shard 1 and cp 1)", "choose parallel=fsdp, or leave it out"),
    "graphs": _graphs,
    "spmd": _spmd,
    "spmd_types": needs(
        lambda case: case.also("parallelism.spmd_backend", "partial_dtensor") == "spmd_types",
        "has no effect without spmd_backend=spmd_types",
        "add backend.native.parallelism.spmd_backend=spmd_types",
    ),
    "context": CONTEXT,
    "balancer": one_of("headtail", "ptrr", None),
    "tensor": TENSOR,
    "saving": needs(lambda case: case.config.checkpoint.every > 0, "has no effect with checkpoint.every=0"),
    "recompute": needs(
        lambda case: case.config.training.recompute != "none" or "activation_checkpoint.memory_budget" in case.given,
        "has no effect with training.recompute=none",
        "choose training.recompute=full or selective, or leave it out",
    ),
    "selective": needs(
        lambda case: case.config.training.recompute == "selective",
        "has an effect with training.recompute=selective only",
        "choose training.recompute=selective, or leave it out",
    ),
    "determinism": one_of("default", "none"),
    "budget": needs(
        lambda case: _model_is_compiled(case) and case.config.training.recompute == "none",
        "is the compiler's own choice of what to recompute: it needs a compiled model and training.recompute=none",
        "add backend.native.compile.enable=true",
    ),
    "budget_given": needs(
        lambda case: "activation_checkpoint.memory_budget" in case.given,
        "has no effect without a memory budget",
        "add backend.native.activation_checkpoint.memory_budget=0.5",
    ),
    "compiled": needs(_is_compiled, "has no effect without compile.enable=true", "add backend.native.compile.enable=true"),
    "components": _components,
    "real_collectives": needs(
        lambda case: case.value in ("default", "torchcomms"),
        "a mode without real communication trains nothing",
        "default, or torchcomms where that package is installed",
    ),
    "deterministic": needs(
        lambda case: case.config.training.deterministic,
        "has no effect with training.deterministic=false",
        "add training.deterministic=true",
    ),
    "chunks": needs(
        lambda case: case.config.parallel.schedule != "zero_bubble",
        "has no effect with parallel.schedule=zero_bubble, under which the loss is computed whole",
    ),
}
"""By the name that an option gives."""
