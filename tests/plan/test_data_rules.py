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


@pytest.fixture(autouse=True)
def _in_a_folder_with_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("corpus.bin", "corpus.idx", "other.bin", "other.idx", "book.txt", "tokenizer.json"):
        (tmp_path / name).touch()


LEGAL = (
    {},
    {"source": "mock"},
    {"source": "indexed", "path": "corpus"},
    {"source": "indexed", "path": ["corpus.bin", "other.idx"]},
    {"source": "indexed", "path": ["corpus", "other"], "weights": [7.0, 3.0]},
    {"source": "text", "path": "book.txt", "text_key": "content"},
    {"source": "text", "path": ["book.txt", "corpus.bin"], "tokenizer": "tokenizer.json", "end_of_document": "</s>"},
    {"source": "text", "path": ".", "tokenizer": "."},
    {"source": "instructions", "path": "book.txt", "prompt_key": "question", "packing": False, "too_long": "drop"},
    {"source": "instructions", "path": ".", "tokenizer": ".", "end_of_document": "</s>", "chat_template": "plain"},
    {"source": "instructions", "path": ".", "messages_key": "chat", "chat_template": "book.txt"},
)


@pytest.mark.parametrize("data", LEGAL)
def test_legal(data: dict[str, Any]) -> None:
    assert wheres(**data) == []


@pytest.mark.parametrize(
    "data",
    [
        {"source": "indexed"},
        {"source": "indexed", "path": ""},
        {"source": "indexed", "path": []},
        {"source": "text"},
        {"source": "instructions"},
        {"source": "text", "path": ["book.txt", ""]},
        {"source": "mock", "path": "corpus"},
        {"path": "corpus"},
        {"source": "text", "path": ["book.txt", "./book.txt"]},
        {"source": "indexed", "path": ["corpus", "corpus.bin"]},
    ],
)
def test_path_is_needed_where_files_are_read_once_each_and_has_no_effect_elsewhere(data: dict[str, Any]) -> None:
    assert wheres(**data) == ["data.path"]


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ([1.0], "1 weights for 2 paths"),
        ([1.0, 2.0, 3.0], "3 weights for 2 paths"),
        ([1.0, -2.0], "-2, the weight of other, is negative"),
        ([0.0, 1.0], "0, the weight of corpus, is zero"),
    ],
)
def test_wrong_weights(weights: list[float], told: str) -> None:
    data = DataConfig(source="indexed", path=["corpus", "other"], weights=weights)
    (problem,) = check_data(data, TrainingConfig(), 320)
    assert problem.where == "data.weights"
    assert told in problem.what


def test_all_weights_zero_are_two_mistakes() -> None:
    assert wheres(source="indexed", path=["corpus", "other"], weights=[0.0, 0.0]) == ["data.weights"] * 2


@pytest.mark.parametrize(
    "data",
    [
        {"weights": [1.0]},
        {"source": "text", "path": "book.txt", "weights": [1.0]},
        {"source": "indexed", "path": "corpus", "weights": [1.0]},
        {"text_key": "content"},
        {"source": "mock", "end_of_document": "</s>"},
        {"source": "indexed", "path": "corpus", "tokenizer": "tokenizer.json"},
        {"source": "text", "path": "book.txt", "end_of_document": "</s>"},
        {"source": "text", "path": "book.txt", "response_key": "answer"},
        {"source": "text", "path": "book.txt", "chat_template": "plain"},
        {"source": "instructions", "path": "book.txt", "text_key": "content"},
        {"source": "instructions", "path": "book.txt", "weights": [1.0]},
        {"source": "instructions", "path": "book.txt", "end_of_document": "</s>"},
        {"packing": False},
        {"source": "mock", "too_long": "drop"},
    ],
)
def test_settings_without_effect(data: dict[str, Any]) -> None:
    (where,) = wheres(**data)
    assert where.partition(".")[2] in data


@pytest.mark.parametrize("split", [(-1.0, 2.0), (98.0, -2.0), (0.0, 0.0), (0.0, 1.0)])
def test_shares(split: tuple[float, float]) -> None:
    assert "data.split" in wheres(split=split, eval_every=0)


def test_evaluation_needs_a_share() -> None:
    assert wheres(split=(100.0, 0.0)) == ["data.split"]
    assert wheres(split=(100.0, 0.0), eval_every=0) == []


@pytest.mark.parametrize(("source", "least"), [("stdlib_text", 257), ("mock", 5), ("text", 257), ("instructions", 257)])
def test_vocabulary(source: str, least: int) -> None:
    data = DataConfig(source=source, path="book.txt" if source in ("text", "instructions") else None)  # type: ignore[arg-type]
    assert check_data(data, TrainingConfig(), least) == []
    (problem,) = check_data(data, TrainingConfig(), least - 1)
    assert problem.where == "model.vocab_size"
    assert str(least - 1) in problem.what
    assert f"model.vocab_size={least}" in problem.fix[0]


def test_each_mistake_is_reported_once() -> None:
    assert wheres(100, path="corpus", split=(0.0, 0.0)) == ["data.path", "data.split", "model.vocab_size"]
    found = wheres(100, source="text", path=["book.txt", "boek.txt"], weights=[1.0], tokenizer="tokeniser.json", split=(0.0, 0.0))
    assert found == ["data.weights", "data.split", "data.path", "data.tokenizer"]


def test_every_tokenizer_has_its_size() -> None:
    assert set(VOCAB_SIZES) == {"byte"}


def test_no_engine_is_imported() -> None:
    code = "import sys, primus_app.plan.data_rules; sys.exit(bool({'torch', 'megatron', 'torchtitan'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
