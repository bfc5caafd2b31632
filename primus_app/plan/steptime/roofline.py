"""Time of one operation on one device: the larger of its arithmetic and its traffic with memory."""

import numpy as np

from primus_app.plan.steptime.rates import Rates
from primus_app.plan.workload import Number


def gemm_s(
    rates: Rates, m: Number, n: Number, k: Number, *, count: Number = 1, flops: float | None = None, extra_bytes: Number = 0
) -> Number:
    """Seconds of ``count`` products of m x k and k x n in one kernel.

    Arithmetic: ``2·m·n·k·(1 + e/m + e/n + e/k) / rate`` with e = gemm_edge: tiles that a size does not fill, and the start and end
    of the sum over k, cost as much as e more rows, columns and terms. Traffic: each matrix once, 2 bytes an element.

    Args:
        flops: FLOP/s of large products; the workload's number format where left out.
        extra_bytes: further traffic of one product, such as that of the sum of gradients it is added to.
    """
    arithmetic = 2.0 * m * n * k * (1 + rates.gemm_edge * (1 / m + 1 / n + 1 / k)) / (flops or rates.gemm)
    traffic = (2.0 * (1.0 * m * k + 1.0 * k * n + 1.0 * m * n) + extra_bytes) / rates.memory
    return count * np.maximum(arithmetic, traffic) + rates.kernel


def memory_s(rates: Rates, num_bytes: Number, kernels: float = 1) -> Number:
    """Seconds of operations that only move bytes to and from memory."""
    return num_bytes / rates.memory + kernels * rates.kernel


ATTENTION_EDGE = 256
"""Keys that a fused kernel's first and last blocks lose: two blocks of 128 (arXiv 2307.08691, section 3.3)."""


def attention_s(rates: Rates, queries: Number, keys: Number, heads: Number, d_qk: int, d_v: int, *, backward: bool = False) -> Number:
    """Seconds of fused attention of ``queries``, each to ``keys`` keys that are really computed (half of all under a causal mask).

    Forward: two products, ``2·pairs·heads·(d_qk + d_v)`` FLOPs. Backward: five, counting the scores computed again:
    ``2·pairs·heads·(3·d_qk + 2·d_v)`` (arXiv 2205.14135, algorithm 4).
    """
    per_pair = 3 * d_qk + 2 * d_v if backward else d_qk + d_v
    rate = rates.attention_backward if backward else rates.attention_forward
    return 2.0 * queries * keys * heads * per_pair * (1 + ATTENTION_EDGE / keys) / rate + rates.kernel


def scores_s(rates: Rates, pairs: Number, *, backward: bool = False) -> Number:
    """Seconds of the traffic of attention that is not fused, on ``pairs`` of query and key over all heads, causal or not.

    In 2-byte numbers, with a mask of one byte for dropout. Forward: the product writes the scores (2), softmax reads and writes (4),
    dropout reads and writes (4 + 1), the second product reads (2). Backward: as many again and one more read of the softmax's output.
    """
    return memory_s(rates, (16.0 if backward else 13.0) * pairs, kernels=4)
