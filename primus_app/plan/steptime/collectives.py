"""Time of a collective among some ranks, from latency and bandwidth inside a node and between nodes."""

from dataclasses import dataclass

import numpy as np

from primus_app.plan.steptime.rates import Rates
from primus_app.plan.workload import Number


@dataclass(frozen=True)
class Group:
    """Ranks that talk to each other.

    Attributes:
        size: how many.
        inside: how many of them share a node.
        nodes: nodes that they are on.
    """

    size: Number
    inside: Number
    nodes: Number


def group(rates: Rates, size: Number, stride: Number = 1) -> Group:
    """``size`` ranks, each ``stride`` after the one before, on nodes that are filled in the order of the ranks."""
    size = np.maximum(size, 1)
    inside = np.minimum(size, np.maximum(rates.domain // np.maximum(stride, 1), 1))
    return Group(size, inside, np.maximum(size // inside, 1))


def all_gather_s(rates: Rates, ranks: Group, num_bytes: Number) -> Number:
    """Seconds until every rank has all ``num_bytes``, of which it held 1/n: a ring of n − 1 steps.

    ``(n−1)/n · bytes / bandwidth``. A ring that crosses nodes enters and leaves each of them once for each rank on it, over that
    rank's own network card, so its bandwidth is the smaller of the links' and ``inside`` cards'.
    """
    share = (ranks.size - 1) / ranks.size
    return share * num_bytes / _ring_bandwidth(rates, ranks) + _ring_latency(rates, ranks)


def reduce_scatter_s(rates: Rates, ranks: Group, num_bytes: Number) -> Number:
    """Seconds until every rank has 1/n of the sum of ``num_bytes``; the same ring as :func:`all_gather_s`."""
    return all_gather_s(rates, ranks, num_bytes)


def all_reduce_s(rates: Rates, ranks: Group, num_bytes: Number) -> Number:
    """Seconds until every rank has the sum: both of the above, ``2(n−1)/n · bytes / bandwidth``."""
    return 2 * all_gather_s(rates, ranks, num_bytes)


def all_to_all_s(rates: Rates, ranks: Group, num_bytes: Number, far_share: Number = 1.0) -> Number:
    """Seconds until each rank has sent 1/n of its ``num_bytes`` to each: directly, over links and network at the same time.

    Args:
        far_share: part of what is meant for other nodes that crosses the network, where copies are made on arrival.
    """
    near = num_bytes * (ranks.inside - 1) / ranks.size / link_bandwidth(rates, ranks.inside)
    far = far_share * num_bytes * (ranks.size - ranks.inside) / ranks.size / rates.nic
    start = np.where(ranks.inside > 1, rates.link_latency, 0.0) + np.where(ranks.nodes > 1, rates.nic_latency, 0.0)
    return np.maximum(near, far) + start


def send_s(rates: Rates, num_bytes: Number, distance: Number) -> Number:
    """Seconds from one rank to the one ``distance`` further, which is on the same node where that is below the node's size."""
    near = distance < rates.domain
    bandwidth = np.where(near, link_bandwidth(rates, 2), rates.nic)
    return num_bytes / bandwidth + np.where(near, rates.link_latency, rates.nic_latency)


def link_bandwidth(rates: Rates, inside: Number) -> Number:
    """Bytes/s of one rank to ``inside`` − 1 others of its node: all links through a switch, one for each peer in a mesh."""
    if not rates.mesh:
        return rates.link
    return rates.link * np.clip(inside - 1, 1, rates.domain - 1) / (rates.domain - 1)


def _ring_bandwidth(rates: Rates, ranks: Group) -> Number:
    links = link_bandwidth(rates, ranks.inside)
    cards = ranks.inside * rates.nic
    return np.where(ranks.nodes > 1, np.where(ranks.inside > 1, np.minimum(links, cards), cards), links)


def _ring_latency(rates: Rates, ranks: Group) -> Number:
    between = np.where(ranks.nodes > 1, ranks.nodes, 0)
    return (ranks.size - np.maximum(between, 1)) * rates.link_latency + between * rates.nic_latency
