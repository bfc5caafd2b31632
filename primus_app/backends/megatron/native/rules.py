"""When a field of Megatron's configurations would do nothing or fail: one function a rule, each saying why and what to do, or nothing."""

from collections.abc import Iterable

from primus_app.backends.megatron.translate import overlaps_gathering, overlaps_reduction, shards_optimizer
from primus_app.backends.native.options import Case, Rule, Verdict
from primus_app.backends.native.rules import ABOVE_0, ACCELERATOR, CONTEXT, FROM_0, LEAVE_OUT, TENSOR, needs
from primus_app.plan.batch import micro_batch_size
from primus_app.plan.plan import schedule_rhythm
from primus_app.plan.stage_rules import stops_at_borders

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
WITH_ENGINE = ("moe_act", "layernorm", "mla_up_proj")
OFFLOADABLE = ("core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear")
"""TransformerConfig.__post_init__ of megatron-core 0.16 and 0.17."""

FLEX = "transformer.moe_token_dispatcher_type"


def _on_cpu(case: Case) -> bool:
    return case.config.hardware.vendor == "cpu"


def _is_sharded(case: Case) -> bool:
    return case.mesh is None or shards_optimizer(case.config, case.mesh)


def _has_replicas(case: Case) -> bool:
    return case.mesh is None or case.mesh.dp * case.mesh.cp > 1


def _reduces_early(case: Case) -> bool:
    return case.mesh is None or overlaps_reduction(case.config, case.mesh, cpu=_on_cpu(case))


def _gathers_early(case: Case) -> bool:
    return case.mesh is None or overlaps_gathering(case.config, case.mesh, cpu=_on_cpu(case))


def _has_own_attention(case: Case) -> bool:
    """As model.has_own_attention, where Transformer Engine imports."""
    config = case.config
    windows_under_cp = bool(config.model.sliding_window) and config.parallel.cp > 1
    return stops_at_borders(config) or windows_under_cp or config.model.attention_sinks


def _divides_sequence(case: Case) -> bool:
    return case.config.parallel.tp > 1 and case.config.parallel.sequence_parallel


def _among(value: Iterable[str], names: tuple[str, ...]) -> Verdict:
    unknown = [name for name in value if name not in names]
    return (f"there is no {', '.join(map(str, unknown))}", f"any of {', '.join(names)}") if unknown else None


def _modules(case: Case) -> Verdict:
    model, value = case.config.model, case.value or []
    if wrong := _among(value, MODULES):
        return wrong
    if "mla_up_proj" in value and model.mla is None:
        return "mla_up_proj is of latent attention, which this model does not have", "leave it out of the list"
    if model.moe is None and (idle := [name for name in value if name in ("moe", "moe_act", "shared_experts")]):
        return f"{', '.join(idle)}: this model has no experts", "leave them out of the list"
    if _on_cpu(case) and (idle := [name for name in value if name in WITH_ENGINE]):
        return f"{', '.join(idle)}: megatron-core asks Transformer Engine for it", "core_attn, mlp, moe and shared_experts go without"
    return None


def _layers(case: Case) -> Verdict:
    total = case.config.model.num_hidden_layers
    if case.value is not None and 0 < case.value <= total:
        return None
    return f"{case.value} is not from 1 to the model's {total} layers", f"give 1 to {total}"


def _fewer_layers(case: Case) -> Verdict:
    most = case.config.model.num_hidden_layers - 1
    return None if 0 < case.value <= most else (f"{case.value} is not from 1 to {most}, one less than the model has", f"give 1 to {most}")


def _offload_modules(case: Case) -> Verdict:
    wrong = _among(case.value or [], OFFLOADABLE)
    if wrong or not case.value or "attn_proj" not in case.value or "core_attn" in case.value:
        return wrong
    return "attn_proj goes with core_attn only, whose output it takes", "add core_attn to the list"


def _group(case: Case) -> Verdict:
    if case.mesh is None or case.value is None:
        return None
    training, mesh = case.config.training, case.mesh
    micro = micro_batch_size(training, mesh.dp, schedule_rhythm(case.config))
    number = training.global_batch_size // (micro * mesh.dp)
    left = number % case.value if case.value > 0 else 0
    if mesh.pp <= case.value <= number and (left == 0 or left >= mesh.pp):
        return None
    what = f"{case.value}: it goes from pp {mesh.pp} to the {number} micro batches of a step, and leaves over none or at least pp"
    return what, f"{mesh.pp}, the default, always goes"


def _dispatcher(case: Case) -> Verdict:
    if not _on_cpu(case) or case.value == "allgather":
        return None
    if case.value == "flex":
        return "flex needs DeepEP or HybridEP, which are for accelerators", "alltoall or allgather"
    if case.mesh is not None and case.mesh.etp > 1:
        return "alltoall with etp gathers parts of different sizes, which gloo does not", "allgather, the default here"
    return None


def _exchange(case: Case) -> Verdict:
    kinds = [case.value] if isinstance(case.value, str) else case.value or []
    if wrong := _among(kinds, ("p2p", "all_gather", "a2a", "a2a+p2p")):
        return wrong
    if isinstance(case.value, list) and len(kinds) != case.config.model.num_hidden_layers:
        return f"has {len(kinds)} words for {case.config.model.num_hidden_layers} layers", "give one word, or one for each layer"
    if "a2a+p2p" in kinds:
        return "a2a+p2p needs two levels of context groups, and there is one", "p2p, all_gather or a2a"
    return None


def _batched(case: Case) -> Verdict:
    return (
        None
        if case.config.parallel.schedule != "interleaved"
        else ("has no effect: interleaved stages do not exchange in batches", LEAVE_OUT)
    )


RULES: dict[str, Rule] = {
    "above_0": ABOVE_0,
    "from_0": FROM_0,
    "size": needs(lambda case: case.value is None or case.value > 0, "must be above 0", "give a number above 0"),
    "accelerator": ACCELERATOR,
    "context": CONTEXT,
    "tensor": TENSOR,
    "pipeline": needs(lambda case: case.config.parallel.pp > 1, "has no effect with parallel.pp=1"),
    "whole_pipeline": needs(lambda case: case.config.parallel.pp == 1, "does not go with parallel.pp above 1 in megatron-core"),
    "interleaved": needs(
        lambda case: case.config.parallel.schedule == "interleaved" and case.config.parallel.pp > 1,
        "has an effect with parallel.schedule=interleaved only",
    ),
    "batched": _batched,
    "group": _group,
    "replicas": needs(_has_replicas, "has no effect: there is one data parallel rank, and no gradients to sum (dp 1 and cp 1)"),
    "sharded": needs(_is_sharded, "has no effect without the distributed optimizer", "choose parallel=fsdp, or leave it out"),
    "grad_overlap": needs(
        lambda case: _reduces_early(case) or case.value in (False, None),
        "has no effect without overlap_grad_reduce",
        "add backend.native.ddp.overlap_grad_reduce=true",
    ),
    "param_overlap": needs(
        _gathers_early, "has no effect without overlap_param_gather", "add backend.native.ddp.overlap_param_gather=true"
    ),
    "user_buffers": needs(
        lambda case: bool(case.also("ddp.nccl_ub", False)), "has no effect without nccl_ub", "add backend.native.ddp.nccl_ub=true"
    ),
    "divided_sequence": needs(_divides_sequence, "has no effect with parallel.sequence_parallel=false"),
    "whole_sequence": needs(lambda case: not _divides_sequence(case), "does not go with parallel.sequence_parallel=true in megatron-core"),
    "half": needs(lambda case: case.config.precision.compute == "bf16", "has no effect with precision.compute=fp32"),
    "selective": needs(
        lambda case: case.config.training.recompute == "selective",
        "has an effect with training.recompute=selective only",
        "choose training.recompute=selective, or leave it out",
    ),
    "full": needs(
        lambda case: case.config.training.recompute == "full",
        "has an effect with training.recompute=full only",
        "choose training.recompute=full, or leave it out",
    ),
    "no_recompute": needs(
        lambda case: case.config.training.recompute == "none", "goes with training.recompute=none only", "choose training.recompute=none"
    ),
    "all_layers": needs(
        lambda case: case.config.training.recompute_layers is None,
        "does not go with training.recompute_layers, which is the same in other words",
        "leave one of them out",
    ),
    "modules": _modules,
    "layers": _layers,
    "fewer_layers": _fewer_layers,
    "not_null": needs(lambda case: case.value is not None, "null is not allowed with training.recompute=full", "uniform or block"),
    "rounded_loss": needs(
        lambda case: case.value is False or case.config.precision.compute == "bf16",
        "rounds the loss's gradients to bfloat16, which is another loss curve with precision.compute=fp32",
    ),
    "fused_loss": needs(
        lambda case: bool(case.also("transformer.cross_entropy_loss_fusion", False)),
        "has no effect without cross_entropy_loss_fusion",
        "add backend.native.transformer.cross_entropy_loss_fusion=true",
    ),
    "rope_fusion": needs(
        lambda case: bool(case.also("transformer.apply_rope_fusion", False)),
        "has no effect without apply_rope_fusion",
        "add backend.native.transformer.apply_rope_fusion=true",
    ),
    "stretched_latent": needs(
        lambda case: case.config.model.mla is None or case.config.model.rope_scaling is not None,
        "needs stretched positions (yarn) where attention is latent",
    ),
    "accumulation": needs(
        lambda case: bool(case.also("transformer.gradient_accumulation_fusion", False)),
        "needs gradient_accumulation_fusion",
        "add backend.native.transformer.gradient_accumulation_fusion=true",
    ),
    "deferral": needs(
        lambda case: bool(case.also("transformer.defer_embedding_wgrad_compute", False)),
        "has no effect without defer_embedding_wgrad_compute",
        "add backend.native.transformer.defer_embedding_wgrad_compute=true",
    ),
    "engines_attention": needs(
        lambda case: not _has_own_attention(case),
        "has no effect: documents are masked, windows slide under cp, or heads have sinks, for which the attention is torch's",
    ),
    "kernels": needs(lambda case: case.value != "local", "local is not Transformer Engine's", "flash, fused, unfused or auto"),
    "exchange": _exchange,
    "experts": needs(lambda case: case.config.model.moe is not None, "has no effect on a model without experts"),
    "shared_experts": needs(
        lambda case: case.config.model.moe is not None and bool(case.config.model.moe.num_shared_experts),
        "has no effect on a model without shared experts",
    ),
    "all_to_all": needs(
        lambda case: case.also(FLEX, "alltoall") == "alltoall", "needs moe_token_dispatcher_type=alltoall, the default", LEAVE_OUT
    ),
    "dispatcher": _dispatcher,
    "flex": needs(
        lambda case: case.also(FLEX, "alltoall") == "flex",
        "has no effect without moe_token_dispatcher_type=flex",
        f"add backend.native.{FLEX}=flex",
    ),
    "offloading": needs(
        lambda case: bool(case.also("transformer.cpu_offloading", False)),
        "has no effect without cpu_offloading",
        "add backend.native.transformer.cpu_offloading=true",
    ),
    "some_layers": needs(
        lambda case: not case.value or "transformer.cpu_offloading_num_layers" in case.given,
        "has no effect without a number of layers",
        "add backend.native.transformer.cpu_offloading_num_layers=1",
    ),
    "one_offloading": needs(
        lambda case: not case.also("transformer.cpu_offloading", False) and bool(case.also("transformer.offload_modules", [])),
        "needs offload_modules, and does not go with cpu_offloading",
        "add backend.native.transformer.offload_modules=[core_attn]",
    ),
    "fine_offloading": needs(
        lambda case: bool(case.also("transformer.fine_grained_activation_offloading", False)),
        "has no effect without fine_grained_activation_offloading",
        "add backend.native.transformer.fine_grained_activation_offloading=true",
    ),
    "offload_modules": _offload_modules,
}
"""By the name that an option gives."""
