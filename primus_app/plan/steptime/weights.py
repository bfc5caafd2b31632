"""Weights of one rank, dense and expert, in a layer and in all."""

from dataclasses import dataclass

from primus_app.plan.parameters import count_parameters
from primus_app.plan.workload import Layout, Number, Workload


@dataclass(frozen=True)
class RankWeights:
    """Number of weights on the rank that has most, before sharding over data parallel.

    Attributes:
        dense: without routed experts.
        experts: routed experts.
        table: of ``dense``, the embedding or output table.
    """

    dense: Number
    experts: Number
    table: Number


def rank_weights(workload: Workload, layout: Layout) -> RankWeights:
    """Layers divided evenly over pp, with one table at each end; both on the same rank without pp."""
    model = workload.model
    count = count_parameters(model)
    experts = sum(layer.experts for layer in count.layers)
    dense = sum(layer.total for layer in count.layers) - experts
    tables = 1 if model.tie_word_embeddings else 1 + (layout.pp == 1)
    table = tables * workload.padded_vocab * model.hidden_size / layout.tp
    return RankWeights(dense / (layout.tp * layout.pp) + table, experts / (layout.ep * layout.etp * layout.pp), table)
