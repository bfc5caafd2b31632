"""Illegal data settings are found without a file or an engine."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_app.config.schema import DataConfig, TrainingConfig
from primus_app.plan.data_rules import VOCAB_SIZES, check_data


def wheres(vocab_size: int = 320, eval_every: int = 50, **data: Any) -> list[str]:
    problems = check_data(DataConfig(**data), TrainingConfig(eval_every=eval_every), vocab_size)
    assert all(problem.what.endswith(".") and problem.fix for problem in problems)
    return [problem.where for problem in problems]


@pytest.mark.parametrize("data", [{}, {"source": "mock"}, {"source": "indexed", "path": "corpus"}])
def test_legal(data: dict[str, Any]) -> None:
    assert wheres(**data) == []


@pytest.mark.parametrize(
    "data",
    [{"source": "indexed"}, {"source": "indexed", "path": ""}, {"source": "mock", "path": "corpus"}, {"path": "corpus"}],
)
def test_path_is_needed_for_indexed_and_has_no_effect_elsewhere(data: dict[str, Any]) -> None:
    assert wheres(**data) == ["data.path"]


@pytest.mark.parametrize("split", [(-1.0, 2.0), (98.0, -2.0), (0.0, 0.0), (0.0, 1.0)])
def test_shares(split: tuple[float, float]) -> None:
    assert "data.split" in wheres(split=split, eval_every=0)


def test_evaluation_needs_a_share() -> None:
    assert wheres(split=(100.0, 0.0)) == ["data.split"]
    assert wheres(split=(100.0, 0.0), eval_every=0) == []


@pytest.mark.parametrize(("source", "least"), [("stdlib_text", 257), ("mock", 5)])
def test_vocabulary(source: str, least: int) -> None:
    assert wheres(least, source=source) == []
    (problem,) = check_data(DataConfig(source=source), TrainingConfig(), least - 1)  # type: ignore[arg-type]
    assert problem.where == "model.vocab_size"
    assert str(least - 1) in problem.what
    assert f"model.vocab_size={least}" in problem.fix[0]


def test_each_mistake_is_reported_once() -> None:
    assert wheres(100, path="corpus", split=(0.0, 0.0)) == ["data.path", "data.split", "model.vocab_size"]


def test_every_tokenizer_has_its_size() -> None:
    assert set(VOCAB_SIZES) == {"byte"}


def test_no_engine_is_imported() -> None:
    code = "import sys, primus_app.plan.data_rules; sys.exit(bool({'torch', 'megatron', 'torchtitan'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
