"""What a layer of TorchTitan keeps for the backward pass: without recomputation, or what its selective policy saves."""

from primus_app.config.schema import ModelConfig, MoeConfig
from primus_app.plan.memory.attention import key_width, output_width, query_width, value_width
from primus_app.plan.memory.megatron_plain import latents
from primus_app.plan.memory.plain import FLOAT32, INT64, plain_norm, plain_product
from primus_app.plan.memory.sinks import titan_sink_product
from primus_app.plan.memory.widths import Widths, element
from primus_app.plan.workload import Workload


def titan_attention(workload: Workload) -> Widths:
    """Norm, separate projections, rotation and product, operation by operation.

    The table of rotations is gathered anew in each layer, for each token: complex64 for half the width, or cosine and sine in
    float32 for all of it (Qwen3, gpt_oss). torch.compile works the norm's output out again, so its input alone is kept.
    """
    model = workload.model
    norm = _norm(workload, model.hidden_size)
    if workload.fused:
        return norm + Widths(parallel=_product(workload) + _inner_norms(workload)) + _latents(workload)
    kept = plain_product(workload)
    if model.mla is not None:
        return norm + latents(workload, model.mla) + Widths(parallel=kept, whole=FLOAT32 * model.mla.qk_rope_head_dim)
    table = FLOAT32 * model.head_dim * (2 if model.family.startswith(("qwen3", "gpt_oss")) else 1)
    if model.attention_sinks:
        return norm + titan_sink_product(workload) + Widths(whole=table)
    if model.qk_norm:
        kept += plain_norm(workload, query_width(model), groups=model.num_attention_heads, keeps_output=False)
        kept += plain_norm(workload, key_width(model), groups=model.num_key_value_heads, keeps_output=False)
    return norm + Widths(parallel=kept, whole=table)


def titan_mlp(workload: Workload) -> Widths:
    """Norm and SwiGLU: both products, the activation and the result; torch.compile keeps the two products alone."""
    model, wide = workload.model, element(workload)
    return _norm(workload, model.hidden_size) + Widths(parallel=_swiglu(workload) * wide * model.intermediate_size)


def titan_experts(workload: Workload, moe: MoeConfig) -> Widths:
    """Norm, router, shared and routed experts; the gathered input and the output of each copy of a token are kept.

    The output in float32, in which it is weighted with its score.
    """
    model, wide, chosen = workload.model, element(workload), moe.num_experts_per_tok
    router = FLOAT32 * moe.num_experts + (3 * INT64 + FLOAT32) * chosen
    if moe.norm_topk_prob:
        router += FLOAT32
    if moe.expert_bias_terms:
        router += INT64 * chosen
    if moe.n_group > 1:
        router += 2 * INT64 * moe.n_group + INT64 * moe.topk_group + moe.n_group
    width = _swiglu(workload) * wide * moe.moe_intermediate_size
    routed = Widths(routed=(wide + FLOAT32) * model.hidden_size + FLOAT32, routed_parallel=width)
    return _norm(workload, model.hidden_size) + Widths(split=router, parallel=width * moe.num_shared_experts) + routed


def titan_saved(workload: Workload, *, experts: bool) -> Widths:
    """What SelectiveAC saves: the layer's input, attention's output, and the output of every second matrix product.

    torchtitan, distributed/activation_checkpoint.py: products count from 1 in the order of the forward pass and the odd ones are kept; the
    router's is not counted. Grouped products of experts are not kept; what the exchange of tokens gives is, both ways.
    """
    model, wide = workload.model, element(workload)
    whole, parallel = 0, 0
    for index, (width, divided) in enumerate(_products(model, experts=experts)):
        kept = width if index % 2 == 0 else 0
        whole, parallel = (whole, parallel + kept) if divided else (whole + kept, parallel)
    product = wide * output_width(model) + FLOAT32 * model.num_attention_heads
    routed = Widths(exchanged=2 * wide * model.hidden_size, routed=FLOAT32) if experts else Widths()
    return Widths(whole=wide * whole, split=wide * model.hidden_size, parallel=wide * parallel + product) + routed


def _products(model: ModelConfig, *, experts: bool) -> list[tuple[int, bool]]:
    """Output widths of a layer's matrix products in order, and whether tp divides them."""
    hidden, mla = model.hidden_size, model.mla
    if mla is None:
        found = [(query_width(model), True), (key_width(model), True), (value_width(model), True)]
    else:
        query = [(query_width(model), True)]
        found = [(mla.q_lora_rank, False), *query] if mla.q_lora_rank else query
        expanded = model.num_attention_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        found += [(mla.kv_lora_rank + mla.qk_rope_head_dim, False), (expanded, True)]
    found.append((hidden, False))
    if not experts:
        width = model.intermediate_size
    elif model.moe is not None and model.moe.num_shared_experts:
        width = model.moe.num_shared_experts * model.moe.moe_intermediate_size
    else:
        return found
    return [*found, (width, True), (width, True), (hidden, False)]


def _swiglu(workload: Workload) -> int:
    """Elements for each of the width; gpt_oss bounds both halves, whose one tensor is kept too, and adds 1 to the second."""
    if workload.compiled:
        return 2
    return 4 if workload.model.swiglu_limit is None else 7


def _norm(workload: Workload, width: int) -> Widths:
    """A norm whose output products take: under tp these keep it gathered, whole on each rank, where Megatron would gather it again.

    On an accelerator torch's rms_norm is fused and keeps its input and one factor. Compilation works the output out again, unless
    it would have to be gathered again.
    """
    output = element(workload) * width
    if not workload.fused:
        return Widths(split=plain_norm(workload, width, keeps_output=False), whole=output)
    kept = Widths(split=output + FLOAT32)
    return kept + (Widths(gathered=output) if workload.compiled else Widths(whole=output))


def _product(workload: Workload) -> int:
    model = workload.model
    widths = query_width(model) + key_width(model) + value_width(model) + output_width(model)
    return element(workload) * widths + FLOAT32 * model.num_attention_heads


def _inner_norms(workload: Workload) -> int:
    model = workload.model
    return element(workload) * (query_width(model) + key_width(model)) if model.qk_norm and model.mla is None else 0


def _latents(workload: Workload) -> Widths:
    mla = workload.model.mla
    if mla is None:
        return Widths()
    query = _norm(workload, mla.q_lora_rank) if mla.q_lora_rank else Widths()
    return query + _norm(workload, mla.kv_lora_rank) + Widths(split=element(workload) * mla.qk_rope_head_dim)
