"""Single operations against their FLOPs and bytes."""

import pytest

from primus_app.plan.steptime.rates import Rates
from primus_app.plan.steptime.roofline import attention_s, gemm_s, memory_s, scores_s

RATES = Rates(
    gemm=1e15,
    gemm_bf16=5e14,
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


def test_a_large_product_runs_at_the_reached_peak() -> None:
    side = 2**20
    assert gemm_s(RATES, side, side, side) == pytest.approx(2 * side**3 / 1e15, rel=1e-3)
    assert gemm_s(RATES, side, side, side, flops=5e14) == pytest.approx(2 * side**3 / 5e14, rel=1e-3)


def test_a_product_with_few_rows_is_bound_by_memory() -> None:
    assert gemm_s(RATES, 1, 8192, 8192) == pytest.approx(2 * (8192 + 8192**2 + 8192) / 1e12)


def test_halving_a_product_by_columns_costs_efficiency() -> None:
    whole, half = gemm_s(RATES, 4096, 8192, 8192), gemm_s(RATES, 4096, 1024, 8192)
    assert half > whole / 8
    assert half < whole / 4


def test_attention_counts_two_products_forward_and_five_backward() -> None:
    pairs = (8192, 2**24)
    assert attention_s(RATES, *pairs, 32, 128, 128) == pytest.approx(4 * 8192 * 2**24 * 32 * 128 / 5e14, rel=1e-4)
    assert attention_s(RATES, *pairs, 32, 128, 128, backward=True) == pytest.approx(10 * 8192 * 2**24 * 32 * 128 / 4e14, rel=1e-4)


def test_memory_bound_work_follows_its_bytes() -> None:
    assert memory_s(RATES, 5e11) == pytest.approx(0.5)
    assert scores_s(RATES, 1e9) == pytest.approx(13e9 / 1e12)
