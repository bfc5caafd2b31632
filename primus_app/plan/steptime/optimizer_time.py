"""Time of the optimizer's step, which is bound by memory."""

from primus_app.plan.steptime.rates import Rates
from primus_app.plan.steptime.roofline import memory_s
from primus_app.plan.steptime.weights import RankWeights
from primus_app.plan.workload import Layout, Number, Workload

ADAM_BYTES = 40
"""A weight's: gradient read for its norm and for the step (8), two moments and the master weight read and written (24), the copy in 16
bits written (2), the gradient set to zero and read once more where it is scaled by clipping (6)."""


def optimizer_s(rates: Rates, workload: Workload, layout: Layout, weights: RankWeights) -> Number:
    """Seconds of AdamW with clipping on a rank's part of the weights; its gradients are set to zero whole."""
    divided = 1.0 if workload.engine == "torchtitan" else layout.sharded_optimizer
    dense = 1 + (layout.shards - 1) * divided
    experts = 1 + (layout.expert_shards - 1) * divided
    whole = 0.0 if workload.engine == "torchtitan" else 4.0 * (weights.dense + weights.experts)
    return memory_s(rates, ADAM_BYTES * (weights.dense / dense + weights.experts / experts) + whole, kernels=20)
