"""Collectives against the closed forms of rings and direct exchange (Thakur et al., 2005, as in NCCL's notes on bus bandwidth)."""

from dataclasses import replace

import numpy as np
import pytest

from primus_app.plan.steptime.collectives import all_gather_s, all_reduce_s, all_to_all_s, group, reduce_scatter_s, send_s
from primus_app.plan.steptime.rates import Rates

RATES = Rates(
    gemm=1e15,
    gemm_bf16=1e15,
    gemm_edge=128,
    attention_forward=5e14,
    attention_backward=4e14,
    memory=1e12,
    kernel=0.0,
    link=100e9,
    mesh=False,
    domain=8,
    nic=25e9,
    link_latency=2e-6,
    nic_latency=10e-6,
)
"""A device with round figures, so that closed forms can be read off."""


def test_ring_inside_a_node() -> None:
    ranks = group(RATES, 4)
    assert all_reduce_s(RATES, ranks, 1e9) == pytest.approx(2 * 3 / 4 * 1e9 / 100e9 + 2 * 3 * 2e-6)
    assert all_gather_s(RATES, ranks, 1e9) == reduce_scatter_s(RATES, ranks, 1e9) == pytest.approx(3 / 4 * 1e9 / 100e9 + 3 * 2e-6)


def test_nothing_is_sent_by_one_rank_alone() -> None:
    alone = group(RATES, 1)
    for collective in (all_gather_s, reduce_scatter_s, all_reduce_s, all_to_all_s):
        assert collective(RATES, alone, 1e9) == 0


def test_ring_between_nodes_uses_the_cards_of_all_its_ranks_on_a_node() -> None:
    whole_nodes, one_of_each = group(RATES, 16), group(RATES, 2, stride=8)
    assert (whole_nodes.inside, whole_nodes.nodes, one_of_each.inside, one_of_each.nodes) == (8, 2, 1, 2)
    assert all_gather_s(RATES, whole_nodes, 16e9) == pytest.approx(15 / 16 * 16e9 / 100e9 + 14 * 2e-6 + 2 * 10e-6)
    assert all_gather_s(RATES, one_of_each, 16e9) == pytest.approx(1 / 2 * 16e9 / 25e9 + 2 * 10e-6)


def test_all_to_all_is_bound_by_what_leaves_the_node() -> None:
    inside, outside = all_to_all_s(RATES, group(RATES, 8), 8e9), all_to_all_s(RATES, group(RATES, 32), 8e9)
    assert inside == pytest.approx(7 / 8 * 8e9 / 100e9 + 2e-6)
    assert outside == pytest.approx(24 / 32 * 8e9 / 25e9 + 12e-6)


def test_two_devices_of_a_mesh_share_one_of_seven_links() -> None:
    mesh = replace(RATES, mesh=True, link=448e9)
    assert send_s(mesh, 64e9, 1) == pytest.approx(1.0 + 2e-6)
    assert all_gather_s(mesh, group(mesh, 2), 128e9) == pytest.approx(1.0 + 2e-6)
    assert all_gather_s(mesh, group(mesh, 8), 448e9) == pytest.approx(7 / 8 + 7 * 2e-6)


def test_sending_leaves_the_node_over_one_card() -> None:
    assert send_s(RATES, 1e9, 8) == pytest.approx(1e9 / 25e9 + 10e-6)


def test_arrays_give_what_single_layouts_give() -> None:
    sizes = np.array([1, 2, 8, 16, 64])
    together = all_reduce_s(RATES, group(RATES, sizes, 2), 1e9)
    assert together == pytest.approx([float(all_reduce_s(RATES, group(RATES, int(size), 2), 1e9)) for size in sizes])
