"""Layout and recomputation of an experiment."""

from collections.abc import Iterator

from primus_app.backends.amd_primus.megatron.settings import Settings
from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import setting

DEGREES = (
    ("tensor_model_parallel_size", "parallel.tp"),
    ("pipeline_model_parallel_size", "parallel.pp"),
    ("context_parallel_size", "parallel.cp"),
)
FSDP = ("use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp")
SAME_LOSS = "the loss is the same"
VIRTUAL = (
    "num_virtual_stages_per_pipeline_rank",
    "virtual_pipeline_model_parallel_size",
    "num_layers_per_virtual_pipeline_stage",
)


def layout_rows(settings: Settings) -> Iterator[Row]:
    """Degrees, experts, the sharding of the optimizer, the pipeline's schedule."""
    for key, ours in DEGREES:
        yield Row(key, settings[key], setting(ours, settings[key]))
    yield from _experts(settings)
    yield Row("sequence_parallel", settings["sequence_parallel"], setting("parallel.sequence_parallel", settings["sequence_parallel"]))
    yield from _sharding(settings)
    yield from _virtual_stages(settings)


def _experts(settings: Settings) -> Iterator[Row]:
    ep, etp = "expert_model_parallel_size", "expert_tensor_parallel_size"
    if not settings["num_experts"]:
        for key in (ep, etp):
            yield Row(key, settings[key], fate=Fate.NO_MEANING, note="the model has no experts")
        return
    yield Row(ep, settings[ep], setting("parallel.ep", settings[ep]))
    ours = settings[etp] or settings["tensor_model_parallel_size"]
    note = "as many as tensor_model_parallel_size" if settings[etp] is None and ours > 1 else ""
    yield Row(etp, settings[etp], setting("parallel.etp", ours), note=note)


def _sharding(settings: Settings) -> Iterator[Row]:
    """parallel=fsdp is Megatron's distributed optimizer on this engine, parallel=dp whole replicas."""
    copies, whole = settings["num_distributed_optimizer_instances"], [key for key in FSDP if settings[key]]
    shards = settings["use_distributed_optimizer"] or bool(whole)
    yield Row("use_distributed_optimizer", settings["use_distributed_optimizer"], ("parallel=fsdp" if shards else "parallel=dp",))
    if shards:
        yield Row("num_distributed_optimizer_instances", copies, setting("parallel.dp_replicate", copies))
    else:
        yield Row("num_distributed_optimizer_instances", copies, fate=Fate.NO_MEANING, note="has no effect without a distributed optimizer")
    note = f"on this engine the optimizer alone is sharded, {SAME_LOSS}; backend=torchtitan shards weights and gradients too"
    for key in FSDP:
        yield Row(key, settings[key], fate=Fate.DIFFERS if key in whole else Fate.SAME, note=note if key in whole else "")


def _virtual_stages(settings: Settings) -> Iterator[Row]:
    pp, layers = settings["pipeline_model_parallel_size"], settings["num_layers"]
    per_stage = settings["num_layers_per_virtual_pipeline_stage"]
    by_key = {
        "num_virtual_stages_per_pipeline_rank": settings["num_virtual_stages_per_pipeline_rank"],
        "virtual_pipeline_model_parallel_size": settings["virtual_pipeline_model_parallel_size"],
        "num_layers_per_virtual_pipeline_stage": None if per_stage is None else max(1, layers // (pp * per_stage)),
    }
    used = next((key for key, stages in by_key.items() if stages), None)
    for key, stages in by_key.items():
        value = settings[key]
        if pp == 1 and value:
            yield Row(key, value, fate=Fate.NO_MEANING, note="has no effect without a pipeline")
        elif key == used and stages and stages > 1:
            yield Row(key, value, (*setting("parallel.vpp", stages), "parallel.schedule=interleaved"))
        else:
            yield Row(key, value, note=f"see {used}" if value and key != used else "")


def recompute_rows(settings: Settings) -> Iterator[Row]:
    """Megatron recomputes none, the attention, the first layers of a stage or all, and so do we; virtual stages are not looked into."""
    kind, method, number = (settings[f"recompute_{name}"] for name in ("granularity", "method", "num_layers"))
    attention = settings["recompute_activations"] and kind is None
    yield Row("recompute_granularity", kind, setting("training.recompute", kind) if kind else ())
    yield Row("recompute_activations", settings["recompute_activations"], ("training.recompute=selective",) if attention else ())
    per_stage = -(-settings["num_layers"] // settings["pipeline_model_parallel_size"])
    some = kind == "full" and method == "block" and number is not None and number < per_stage
    if kind != "full":
        for key, value in (("recompute_method", method), ("recompute_num_layers", number)):
            yield Row(key, value, fate=Fate.NO_MEANING, note="has an effect with recompute_granularity: full only")
        return
    virtual = settings["pipeline_model_parallel_size"] > 1 and any(settings[key] for key in VIRTUAL)
    yield Row("recompute_method", method, note="" if some else "every layer is recomputed")
    if some and not virtual:
        yield Row("recompute_num_layers", number, setting("training.recompute_layers", number))
        return
    note = f"every layer is recomputed, not {number} of a stage's {per_stage}; {SAME_LOSS}" if some else "every layer is recomputed"
    yield Row("recompute_num_layers", number, fate=Fate.DIFFERS if some else Fate.SAME, note=note)
