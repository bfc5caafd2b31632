"""What one rank sends in a step, by kind of parallelism: the formulas of the times, on links of a byte a second."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import numpy as np

from primus_app.plan.steptime.data_parallel import exposed_dp_s
from primus_app.plan.steptime.pipeline import slowest, stages_of
from primus_app.plan.steptime.rates import Rates
from primus_app.plan.steptime.weights import rank_weights
from primus_app.plan.workload import Layout, Workload

UNIT = Rates(
    gemm=inf,
    gemm_bf16=inf,
    gemm_edge=0.0,
    attention_forward=inf,
    attention_backward=inf,
    memory=inf,
    kernel=0.0,
    link=1.0,
    mesh=False,
    domain=1 << 40,
    nic=1.0,
    link_latency=0.0,
    nic_latency=0.0,
)
"""Nothing takes time but bytes, no computing hides any, and no rank is further away than another: seconds are bytes."""


def bytes_sent(workload: Workload, layout: Layout) -> Mapping[str, float]:
    """Bytes that one rank sends in a step for tp, cp, ep, dp and pp; of the pipeline rank that sends most, and for pp of a middle one."""
    plain = replace(workload, overlap_tp=False, overlap_ep=False)
    stages = stages_of(UNIT, plain, layout)
    forward, backward = slowest(stages, layout)
    whole, batches = forward + backward, layout.num_microbatches
    weights = rank_weights(plain, layout)
    return {
        "tp": float(np.max(batches * whole.tp)),
        "cp": float(np.max(batches * whole.cp)),
        "ep": float(np.max(batches * whole.ep)),
        "dp": float(np.max(exposed_dp_s(UNIT, plain, layout, weights, 0.0, 0.0))),
        "pp": float(np.max(2 * batches * layout.vpp * stages.send)),
    }
