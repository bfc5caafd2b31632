"""Communication of gradients and weights between data parallel ranks, and what of it computing does not hide."""

from dataclasses import dataclass

import numpy as np

from primus_app.plan.steptime.collectives import all_gather_s, all_reduce_s, group, reduce_scatter_s
from primus_app.plan.steptime.overlap import exposed_s
from primus_app.plan.steptime.rates import Rates
from primus_app.plan.steptime.weights import RankWeights
from primus_app.plan.workload import RECOMPUTE, Layout, Number, Workload

BUCKET = 40e6
"""Weights in a bucket of Megatron's gradients, or a million for each data parallel rank where that is more (its DDP's default)."""


MATRICES = 4
"""Tensors of a layer that ZeRO 3 gathers one by one: two of attention, two of the MLP; smaller ones stay whole on each rank (DeepSpeed's
stage3_param_persistence_threshold)."""


@dataclass(frozen=True)
class Exchange:
    """Seconds of a step's communication over data parallel ranks, before any is hidden.

    Attributes:
        gather: one gathering of a rank's weights.
        reduce: one summing of a rank's gradients, left where their part of the optimizer is.
    """

    gather: Number
    reduce: Number


def exchange(rates: Rates, workload: Workload, layout: Layout, weights: RankWeights, pieces: Number) -> Exchange:
    """Dense weights over dp_shard · cp ranks and routed experts over those that hold the same ones, in ``pieces`` collectives each."""
    dense = _one(rates, workload, layout, weights.dense / pieces, layout.dp_shard * layout.cp, layout.tp)
    if workload.model.moe is None:
        return Exchange(pieces * dense.gather, pieces * dense.reduce)
    experts = _one(rates, workload, layout, weights.experts / pieces, layout.expert_shards, layout.ep * layout.etp)
    return Exchange(pieces * (dense.gather + experts.gather), pieces * (dense.reduce + experts.reduce))


def _one(rates: Rates, workload: Workload, layout: Layout, weights: Number, shards: Number, stride: Number) -> Exchange:
    width = 1.0 if workload.compute == "fp8" and workload.engine == "torchtitan" else 4.0 if workload.compute == "fp32" else 2.0
    gradient = 4.0 if workload.reduce == "fp32" else 2.0
    ranks, replicas = group(rates, shards, stride), group(rates, layout.dp_replicate, stride * shards)
    gather = all_gather_s(rates, ranks, width * weights)
    reduce = reduce_scatter_s(rates, ranks, gradient * weights)
    across = all_reduce_s(rates, replicas, gradient * weights / shards)
    if workload.engine == "torchtitan":
        return Exchange(gather, reduce + across)
    everyone = group(rates, shards * layout.dp_replicate, stride)
    plain = all_reduce_s(rates, everyone, gradient * weights)
    return Exchange(np.where(layout.sharded_optimizer, gather, 0.0), np.where(layout.sharded_optimizer, reduce + across, plain))


def exposed_dp_s(rates: Rates, workload: Workload, layout: Layout, weights: RankWeights, forward: Number, backward: Number) -> Number:
    """Exposed seconds of a step.

    Args:
        forward: seconds of one micro batch's forward pass on a rank, all its virtual stages.
        backward: the same for its backward pass.
    """
    if workload.engine == "torchtitan":
        return _fully_sharded(rates, workload, layout, weights, forward, backward)
    return _megatron(rates, workload, layout, weights, forward, backward)


def _megatron(rates: Rates, workload: Workload, layout: Layout, weights: RankWeights, forward: Number, backward: Number) -> Number:
    """Once a step: gradients, bucket by bucket, during the last backward pass; weights during the first forward pass."""
    bucket = np.maximum(BUCKET, 1e6 * layout.dp * layout.cp)
    pieces = np.maximum((weights.dense + weights.experts) / bucket, 1.0)
    once = exchange(rates, workload, layout, weights, pieces)
    if not workload.overlap_dp:
        return once.gather + once.reduce
    last = 1 / pieces
    hidden = (1 - last) * once.reduce, (1 - last) * once.gather
    return exposed_s(hidden[0], backward) + exposed_s(hidden[1], forward) + last * (once.reduce + once.gather)


def _fully_sharded(rates: Rates, workload: Workload, layout: Layout, weights: RankWeights, forward: Number, backward: Number) -> Number:
    """FSDP layer by layer: the next layer's weights come while one is computed; gradients leave while the one before is computed.

    Without pp each micro batch gathers weights for each of its passes and sums gradients; with pp the weights stay until the step ends,
    as torchtitan's default has it. Gathered tensor by tensor, those of a layer that is computed again come a third time
    (arXiv 2104.07857, section 4.1).
    """
    by_tensor = workload.gathers == "tensors"
    pieces = (workload.model.num_hidden_layers / layout.pp + 1) * (MATRICES if by_tensor else 1)
    once = exchange(rates, workload, layout, weights, pieces)
    ends = (once.gather + once.reduce) / pieces
    if not workload.overlap_dp:
        again = np.where(by_tensor & (layout.recompute == RECOMPUTE.index("full")), 1, 0)
        each = (2 + again) * once.gather + once.reduce
        return np.where(layout.pp == 1, layout.num_microbatches * each, once.gather + once.reduce)
    each = exposed_s(once.gather, forward) + exposed_s(once.gather + once.reduce, backward) + ends
    step = exposed_s(once.gather, forward) + exposed_s(once.reduce, backward) + ends
    return np.where(layout.pp == 1, layout.num_microbatches * each, step)
