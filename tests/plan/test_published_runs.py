"""Predictions against published runs: the errors that scripts/bench/estimates prints stay within their limits."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "tests/plan/published/measured_runs.json"


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts/bench")


def part(name: str) -> Any:
    return importlib.import_module(f"published_{name}")


@pytest.mark.slow
def test_errors_stay_within_the_limits_and_the_documents_show_them() -> None:
    errors, reasons = part("errors").errors_of(json.loads(ROWS.read_text())["rows"])
    found = part("errors").summary(errors)
    assert set(found) == set(part("errors").LIMITS)
    for kind, numbers in found.items():
        assert part("errors").holds(kind, numbers), (kind, numbers)
    assert found["allocated"]["runs"] == 25
    assert found["step time, dense"]["runs"] + found["step time, experts"]["runs"] > 500
    assert sum(reasons.values()) < 120
    ranking = part("ranking")
    taus = {name: ranking.mean_tau(by_source) for name, by_source in ranking.rankings(errors).items()}
    assert taus["all runs"] > 0.9
    # Below the limit of 0.8, as docs/estimates.md says; it is not to fall further.
    assert taus[ranking.LIMITED] > 0.75
    tables = part("tables")
    written = tables.DOCS.read_text()
    assert tables.in_docs(written, errors, reasons) == written, "run scripts/bench/estimates --docs"
    assert part("plot").plot(errors) == tables.PICTURE.read_text()


def test_tau_is_one_for_the_same_order_and_minus_one_for_the_reverse() -> None:
    tau = part("ranking").kendall_tau
    assert tau([[(1, 2), (2, 3), (3, 9)]]) == 1
    assert tau([[(1, 3), (2, 2), (3, 1)]]) == -1
    # Of three pairs two agree: (2 - 1) / 3.
    assert tau([[(1, 1), (2, 3), (3, 2)]]) == pytest.approx(1 / 3)
    # Two agree and one is a tie of the second column: 2 / sqrt(3 * 2).
    assert tau([[(1, 1), (2, 2), (3, 2)]]) == pytest.approx(2 / 6**0.5)
    # Pairs of different groups are not compared.
    assert tau([[(1, 1), (2, 2)], [(3, 0), (4, 1)]]) == 1


def test_torchtitan_compiles_the_loss_since_april_2025() -> None:
    compiles = part("rows")._compiles_the_loss
    assert compiles("torchtitan benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md", "compile+float8")
    assert not compiles("torchtitan benchmarks/llama3_h100_202412_torchtitan.md T1", "FSDP+compile+float8")
    assert not compiles("torchtitan benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md", "eager")
