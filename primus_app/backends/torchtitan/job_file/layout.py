"""The layout of a job: degrees, pipeline, recomputation and compilation."""

from collections.abc import Iterator

from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import names, native, setting
from primus_app.backends.torchtitan.job_file.batch import Ranks
from primus_app.backends.torchtitan.job_file.flavors import Flavor
from primus_app.backends.torchtitan.job_file.read import Job
from primus_app.plan.neighbours import count

SCHEDULES = {
    "1f1b": ("1f1b", 1),
    "gpipe": ("gpipe", 1),
    "interleaved1f1b": ("interleaved", 2),
}
"""TorchTitan's schedule in lower case: ours, and the stages on a rank where the file does not say."""

NEAREST = {
    "interleavedzerobubble": ("zero_bubble", 1),
    "zbvzerobubble": ("zero_bubble", 1),
    "dualpipev": ("zero_bubble", 1),
    "loopedbfs": ("interleaved", 2),
}
"""Schedules that have no counterpart, and the nearest."""

SAME_CURVE = "the loss curve is the same"


def layout_rows(job: Job, ranks: Ranks, flavor: Flavor | None) -> Iterator[Row]:
    """The rows of [parallelism]."""
    shard = job["parallelism.data_parallel_shard_degree"]
    became = ("parallel=fsdp",) if shard < 0 else setting("parallel.dp_shard", shard) if shard > 1 else ()
    note = "what is left of the devices" if shard < 0 else ""
    yield Row("parallelism.data_parallel_shard_degree", shard, became, note=note)
    for ours, theirs, value in (
        ("dp_replicate", "data_parallel_replicate", ranks.replicate),
        ("tp", "tensor_parallel", ranks.tp),
        ("pp", "pipeline_parallel", ranks.pp),
        ("cp", "context_parallel", ranks.cp),
    ):
        yield Row(f"parallelism.{theirs}_degree", value, setting(f"parallel.{ours}", value))
    yield from _experts(job, ranks, flavor)
    yield from _pipeline(job, ranks, flavor)
    yield from _engine(job, ranks)


def _experts(job: Job, ranks: Ranks, flavor: Flavor | None) -> Iterator[Row]:
    etp_key, etp = "parallelism.expert_tensor_parallel_degree", job["parallelism.expert_tensor_parallel_degree"]
    has_experts = flavor is not None and flavor.balances
    if not has_experts:
        for key, value in (("parallelism.expert_parallel_degree", ranks.ep), (etp_key, etp)):
            yield Row(key, value, fate=Fate.NO_MEANING, note="the model has no experts")
        return
    yield Row("parallelism.expert_parallel_degree", ranks.ep, setting("parallel.ep", ranks.ep))
    ours = ranks.tp if ranks.ep == 1 else 1
    same = etp == ours or ranks.ep == 1
    note = "experts are sharded over tp as long as ep is 1" if ranks.ep == 1 else "each expert is whole once ep is above 1"
    yield Row(etp_key, etp, setting("parallel.etp", ours), Fate.SAME if same else Fate.DIFFERS, note if ours > 1 or not same else "")


def _pipeline(job: Job, ranks: Ranks, flavor: Flavor | None) -> Iterator[Row]:
    schedule_key, per_stage_key = "parallelism.pipeline_parallel_schedule", "parallelism.pipeline_parallel_layers_per_stage"
    typed, per_stage = job[schedule_key], job[per_stage_key]
    divided = [f"parallelism.pipeline_parallel_{name}" for name in ("first_stage_less_layers", "last_stage_less_layers", "split_points")]
    divided += ["parallelism.module_fqns_per_model_part"]
    if ranks.pp == 1:
        for key in (schedule_key, per_stage_key, "parallelism.pipeline_parallel_schedule_csv", *divided):
            yield Row(key, job[key], fate=Fate.NO_MEANING, note="has no effect without a pipeline")
        return
    lower = typed.lower()
    ours, stages = SCHEDULES.get(lower) or NEAREST.get(lower) or ("1f1b", 1)
    known = lower in SCHEDULES
    note = "" if known else f"{ours} with {count(stages, 'stage')} on a rank is the nearest; {SAME_CURVE}"
    yield Row(schedule_key, typed, setting("parallel.schedule", ours), Fate.SAME if known else Fate.DIFFERS, note)
    if per_stage and flavor is not None and stages > 1:
        edges = job[divided[0]] + job[divided[1]]
        stages = max(1, -(-(flavor.layers + edges) // per_stage) // ranks.pp)
    note = "virtual stages on each rank: (layers + those that the ends count for) / layers per stage / pp" if per_stage else ""
    yield Row(per_stage_key, per_stage, setting("parallel.vpp", stages), note=note)
    csv = job["parallelism.pipeline_parallel_schedule_csv"]
    yield Row("parallelism.pipeline_parallel_schedule_csv", csv, fate=Fate.DIFFERS if csv else Fate.NO_MEANING, note="no schedule is read")
    for key in divided:
        note = f"the plan divides the layers: `plan` shows how; {SAME_CURVE}"
        yield Row(key, job[key], fate=Fate.DIFFERS if job.gives(key) and "less" not in key else Fate.NO_MEANING, note=note)


def _engine(job: Job, ranks: Ranks) -> Iterator[Row]:
    """What goes through to TorchTitan, and what it no longer has."""
    key = "parallelism.fsdp_reshard_after_forward"
    is_sharded = (ranks.shard or 2) * ranks.cp > 1
    became = native(key, job[key], "default") if is_sharded else ()
    yield Row(key, job[key], became, Fate.SAME if is_sharded else Fate.NO_MEANING, "" if is_sharded else "nothing is sharded")
    key = "parallelism.context_parallel_load_balancer"
    became = native(key, job[key], "headtail") if ranks.cp > 1 else ()
    yield Row(key, job[key], became, Fate.SAME if ranks.cp > 1 else Fate.NO_MEANING, "" if ranks.cp > 1 else "has no effect with cp 1")
    key = "parallelism.enable_async_tensor_parallel"
    works = bool(job[key]) and ranks.tp > 1 and job["compile.enable"] and "model" in names(job["compile.components"])
    note = "" if works else "has an effect with tp above 1 and a compiled model only"
    became = native("compile.enable_async_tensor_parallel", job[key], False) if works else ()
    yield Row(key, job[key], became, Fate.SAME if works else Fate.NO_MEANING, note)
    for name, note in (
        ("disable_loss_parallel", "torchtitan 0.3 has no such choice"),
        ("enable_compiled_autograd", "torchtitan 0.3 has no such choice"),
        ("context_parallel_rotate_method", "torchtitan 0.3 has no such choice"),
        ("pipeline_parallel_expert_parallel_overlap", "torchtitan 0.3 has no such choice"),
        ("expert_parallel_comm_backend", "experts communicate by all-to-all"),
    ):
        yield Row(f"parallelism.{name}", job[f"parallelism.{name}"], fate=Fate.NO_MEANING, note=f"{note}; {SAME_CURVE}")


def compile_rows(job: Job) -> Iterator[Row]:
    """[compile]: goes through to TorchTitan."""
    enabled = job["compile.enable"]
    yield Row("compile.enable", enabled, native("compile.enable", enabled, False))
    for key, value, default in (
        ("compile.components", names(job["compile.components"]), ["model", "loss"]),
        ("compile.backend", job["compile.backend"], "inductor"),
    ):
        if enabled:
            yield Row(key, job[key], native(key, value, default))
        else:
            yield Row(key, job[key], fate=Fate.NO_MEANING, note="has no effect: nothing is compiled")


def recompute_rows(job: Job) -> Iterator[Row]:
    """[activation_checkpoint]."""
    mode, every = job["activation_checkpoint.mode"], str(job["activation_checkpoint.selective_ac_option"])
    compiled = job["compile.enable"] and "model" in names(job["compile.components"])
    budget = mode == "memory_budget" and compiled
    recompute = {"memory_budget": "none"}.get(mode, mode)
    note = "" if mode != "memory_budget" else "the compiler's own choice" if compiled else "needs a compiled model, as in TorchTitan"
    yield Row("activation_checkpoint.mode", mode, setting("training.recompute", recompute), note=note)
    key = "activation_checkpoint.selective_ac_option"
    by_operation = mode == "selective" and every == "op"
    note = f"selective is by operation (op); for every layer choose training.recompute=full; {SAME_CURVE}"
    fate = Fate.SAME if by_operation else Fate.DIFFERS if mode == "selective" else Fate.NO_MEANING
    yield Row(key, every, fate=fate, note="" if by_operation else note if mode == "selective" else "has an effect with selective only")
    key = "activation_checkpoint.memory_budget"
    share = (f"backend.native.{key}={job[key]!r}",) if budget else ()
    yield Row(key, job[key], share, Fate.SAME if budget else Fate.NO_MEANING, "" if budget else "has an effect with memory_budget only")
    key = "activation_checkpoint.visualize_memory_budget_pareto"
    yield Row(key, job[key], native(key, job[key], False) if budget else (), Fate.SAME if budget else Fate.NO_MEANING)
    for name, default in (("preserve_rng_state", True), ("determinism_check", "default"), ("debug", False)):
        key = f"activation_checkpoint.{name}"
        on = mode in ("full", "selective") or budget
        yield Row(key, job[key], native(key, job[key], default) if on else (), Fate.SAME if on else Fate.NO_MEANING)
    key = "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"
    option = "activation_checkpoint.force_recompute_mm_shapes_by_fqns"
    on = mode == "selective"
    became = native(option, names(job[key]), ["moe.router.gate"]) if on else ()
    yield Row(key, job[key], became, Fate.SAME if on else Fate.NO_MEANING)
    key = "activation_checkpoint.early_stop"
    yield Row(key, job[key], fate=Fate.NO_MEANING, note="torchtitan 0.3 has no such choice")
