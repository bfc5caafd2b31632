"""Which layers each pipeline stage has, and how many weights that is, for the stage and for one of its ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from primus_app.config.schema import ModelConfig
from primus_app.plan.mesh import Mesh
from primus_app.plan.parameters import LayerParameters, ParameterCount


@dataclass(frozen=True)
class Stage:
    """One stage; with vpp > 1 one virtual stage.

    Attributes:
        index: position in the pipeline, from 0 to pp * vpp - 1.
        first_layer: its first transformer layer, counted from 0.
        num_layers: transformer layers in it.
        parameters: weights of the stage; a tied embedding counts on the first and on the last one.
        parameters_per_rank: weights of one rank after tp, ep and etp, before any sharding over data parallel.
        experts_per_rank: the part of parameters_per_rank that is routed experts.
        pipeline_rank: the rank along pp that holds it; virtual stages go round in a loop.
    """

    index: int
    first_layer: int
    num_layers: int
    parameters: int
    parameters_per_rank: int
    experts_per_rank: int
    pipeline_rank: int


def split_layers(num_layers: int, num_stages: int) -> tuple[int, ...] | None:
    """Layers of each stage, or None when the layers cannot be divided.

    All stages have the same number, or all but the first and the last, which have one layer fewer in exchange for the embedding
    and the output (Llama 3, arXiv 2407.21783, section 3.3.2: 126 layers on 16 stages are 7, 14 times 8, and 7).
    """
    if num_layers % num_stages == 0:
        return (num_layers // num_stages,) * num_stages
    middle, rest = divmod(num_layers + 2, num_stages)
    if rest or middle < 2:
        return None
    return (middle - 1, *(middle,) * (num_stages - 2), middle - 1)


def make_stages(model: ModelConfig, parameters: ParameterCount, mesh: Mesh) -> tuple[Stage, ...]:
    """The stages of a layout that :func:`primus_app.plan.divisibility.check_divisibility` finds no fault with."""
    sizes = split_layers(model.num_hidden_layers, mesh.pp * mesh.vpp)
    assert sizes is not None
    firsts = (0, *accumulate(sizes))
    return tuple(
        _stage(index, first, size, model, parameters, mesh) for index, (first, size) in enumerate(zip(firsts, sizes, strict=False))
    )


def _stage(index: int, first: int, size: int, model: ModelConfig, parameters: ParameterCount, mesh: Mesh) -> Stage:
    layers = parameters.layers[first : first + size]
    table, norm = _ends(index, mesh.pp * mesh.vpp, parameters)
    experts = sum(_experts_per_rank(layer, model, mesh) for layer in layers)
    dense = sum(_dense_per_rank(layer, model, mesh.tp) for layer in layers) + table // mesh.tp + norm
    total = sum(layer.total for layer in layers) + table + norm
    return Stage(index, first, size, total, dense + experts, experts, index % mesh.pp)


def _ends(index: int, num_stages: int, parameters: ParameterCount) -> tuple[int, int]:
    """Weights of the vocabulary's tables and of the final norm in a stage. A tied table is needed at both ends, once where they meet."""
    is_first, is_last = index == 0, index == num_stages - 1
    tied = parameters.output == 0
    output = (0 if is_first else parameters.embedding) if tied else parameters.output
    table = (parameters.embedding if is_first else 0) + (output if is_last else 0)
    return table, parameters.final_norm if is_last else 0


def _dense_per_rank(layer: LayerParameters, model: ModelConfig, tp: int) -> int:
    whole = _whole_on_each_rank(model)
    return (layer.attention - whole) // tp + whole + (layer.mlp + layer.shared_experts) // tp + layer.router + layer.norms


def _whole_on_each_rank(model: ModelConfig) -> int:
    """Attention weights that tp does not divide: the latent projections of MLA and the bias after the output projection."""
    bias = model.hidden_size if model.attention_bias and model.mla is None else 0
    if model.mla is None:
        return bias
    return model.hidden_size * ((model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank + model.mla.qk_rope_head_dim)


def _experts_per_rank(layer: LayerParameters, model: ModelConfig, mesh: Mesh) -> int:
    if model.moe is None or layer.experts == 0:
        return 0
    local = layer.experts // mesh.ep
    # The bias after an expert's second matrix is added once, so each rank of etp has all of it.
    bias = model.moe.num_experts // mesh.ep * model.hidden_size if model.moe.expert_bias_terms else 0
    return (local - bias) // mesh.etp + bias


def pipeline_ranks(stages: Sequence[Stage], pp: int) -> list[tuple[int, int]]:
    """(dense, experts) for each rank along pp: weights of one of its ranks, over all its virtual stages."""
    held = [[stage for stage in stages if stage.pipeline_rank == rank] for rank in range(pp)]
    experts = [sum(stage.experts_per_rank for stage in rank) for rank in held]
    return [(sum(stage.parameters_per_rank for stage in rank) - part, part) for rank, part in zip(held, experts, strict=True)]
