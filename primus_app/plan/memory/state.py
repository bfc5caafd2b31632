"""Weights of a rank, and the bytes of weights, gradients and optimizer states that come with them."""

from dataclasses import dataclass
from functools import cache

from primus_app.config.schema import ModelConfig
from primus_app.plan.memory.arithmetic import choose, share
from primus_app.plan.memory.layers import StageLayers
from primus_app.plan.memory.widths import BYTES
from primus_app.plan.parameters import LayerParameters, count_layer
from primus_app.plan.workload import Layout, Number, Workload

FLOAT32 = 4
MOMENTS = 8
"""The two moments of Adam in float32."""


@dataclass(frozen=True)
class RankParameters:
    """Weights of one rank after tp, ep and etp, before any division over data parallel ranks.

    Attributes:
        dense: all but routed experts.
        experts: routed experts.
    """

    dense: Number
    experts: Number


@dataclass(frozen=True)
class State:
    """Bytes of one rank."""

    weights: Number
    gradients: Number
    optimizer: Number


def rank_parameters(workload: Workload, layout: Layout, layers: StageLayers) -> RankParameters:
    """Weights of a rank of the stage; a tied table is held at both ends of a pipeline, once where they meet.

    Heads and widths are divided by tp; MLA's latent projections, norms, routers and the bias after the output projection are whole on
    each rank (Megatron-core's transformer/multi_latent_attention.py). Experts are divided by ep and etp.
    """
    model = workload.model
    dense_layer, expert_layer = _layer(model, 0), _layer(model, model.num_hidden_layers - 1)
    table = share(workload.padded_vocab, layout.tp) * model.hidden_size
    separate = 0 if model.tie_word_embeddings else 1
    tables = layers.is_first + layers.is_last * choose(layout.pp > 1, 1, separate)
    dense = layers.dense * dense_layer_parameters(model, dense_layer, layout) + tables * table + layers.is_last * model.hidden_size
    if model.moe is None:
        return RankParameters(dense, 0 * dense)
    dense = dense + layers.experts * dense_layer_parameters(model, expert_layer, layout)
    return RankParameters(dense, layers.experts * expert_layer_parameters(model, expert_layer, layout))


def dense_layer_parameters(model: ModelConfig, layer: LayerParameters, layout: Layout) -> Number:
    """Weights of one layer on a rank, without routed experts."""
    whole = _whole(model)
    divided = layer.attention - whole + layer.mlp + layer.shared_experts
    return share(divided, layout.tp) + whole + layer.router + layer.norms


def expert_layer_parameters(model: ModelConfig, layer: LayerParameters, layout: Layout) -> Number:
    """Routed experts of one layer on a rank; each rank of etp has all of the bias after an expert's second matrix."""
    assert model.moe is not None
    local = layer.experts // layout.ep
    bias = model.moe.num_experts // layout.ep * model.hidden_size * model.moe.expert_bias_terms
    return share(local - bias, layout.etp) + bias


def state(workload: Workload, layout: Layout, parameters: RankParameters) -> State:
    """Weights, gradients and optimizer states of a rank.

    Megatron in bf16: 2 bytes of weights, 4 of main gradients, and 12 of float32 weights and two moments, which the distributed
    optimizer divides over dp_shard·cp (Megatron-LM, docs/distrib_optimizer: 6 + 12/d bytes a parameter). In float32 the
    weights are their own main weights: 4, 4 and 8/d. fp8 keeps the copies that products take, one byte for each direction
    (Transformer Engine, pytorch/tensor: a Float8Tensor and its transpose).
    TorchTitan: FSDP2 divides float32 weights, gradients and moments alike, 4, 4 and 8 over dp_shard·cp.
    """
    shards, expert_shards = layout.shards, layout.expert_shards
    if workload.engine == "torchtitan":
        divided = share(parameters.dense, shards) + share(parameters.experts, expert_shards)
        return State(FLOAT32 * divided, FLOAT32 * divided, MOMENTS * divided)
    total = parameters.dense + parameters.experts
    plain = workload.compute == "fp32"
    cached = 2 * total if workload.compute == "fp8" else 0
    each = MOMENTS if plain else FLOAT32 + MOMENTS
    dense = share(parameters.dense, choose(layout.sharded_optimizer, shards, 1))
    experts = share(parameters.experts, choose(layout.sharded_optimizer, expert_shards, 1))
    return State(BYTES[workload.compute] * total + cached, FLOAT32 * total, each * (dense + experts))


@cache
def _layer(model: ModelConfig, index: int) -> LayerParameters:
    return count_layer(model, index)


def _whole(model: ModelConfig) -> int:
    if model.mla is None:
        return model.hidden_size if model.attention_bias else 0
    return model.hidden_size * ((model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank + model.mla.qk_rope_head_dim)
