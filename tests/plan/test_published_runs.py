"""Predictions against published runs: the errors that scripts/bench/estimates prints stay within their limits."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(ROOT / "scripts/bench")
    return runpy.run_path(str(ROOT / "scripts/bench/estimates"))


@pytest.mark.slow
def test_errors_stay_within_the_limits(bench: dict[str, Any]) -> None:
    errors, reasons = bench["errors_of"](json.loads(bench["ROWS"].read_text())["rows"])
    found = bench["summary"](errors)
    assert set(found) == set(bench["LIMITS"])
    for kind, numbers in found.items():
        assert bench["holds"](kind, numbers), (kind, numbers)
    assert found["allocated"]["runs"] == 25
    assert found["step time, dense"]["runs"] + found["step time, experts"]["runs"] > 500
    assert sum(reasons.values()) < 120
    assert bench["rankings"](errors)["runs of one source"] > 0.9


def test_tau_is_one_for_the_same_order_and_minus_one_for_the_reverse(bench: dict[str, Any]) -> None:
    tau = bench["kendall_tau"]
    assert tau([(1, 2), (2, 3), (3, 9)]) == 1
    assert tau([(1, 3), (2, 2), (3, 1)]) == -1
    # Of three pairs two agree: (2 - 1) / 3.
    assert tau([(1, 1), (2, 3), (3, 2)]) == pytest.approx(1 / 3)
