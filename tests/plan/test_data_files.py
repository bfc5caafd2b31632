"""Paths that lead nowhere are told by the plan, with what is nearest."""

from pathlib import Path

import pytest

from primus_app.config.schema import DataConfig
from primus_app.plan.data_files import check_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("wiki.jsonl", "web.idx", "web.bin", "alone.idx"):
        (tmp_path / name).touch()
    (tmp_path / "no_tokenizer").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "what", "fix"),
    [
        ("wiky.jsonl", "does not exist", "data.path={0}/wiki.jsonl is in this folder"),
        ("zzz", "does not exist", "{0} has no such entry"),
        ("a/b/c.txt", "does not exist", "{0} is the last folder of {0}/a/b/c.txt that does"),
    ],
)
def test_text(folder: Path, path: str, what: str, fix: str) -> None:
    (problem,) = check_files(DataConfig(source="text", path=str(folder / path)))
    assert problem.where == "data.path"
    assert what in problem.what
    assert problem.fix == (fix.format(folder),)


def test_an_address_is_no_file() -> None:
    (problem,) = check_files(DataConfig(source="text", path="s3://bucket/corpus"))
    assert "is an address" in problem.what


def test_pairs_each_by_its_missing_file(folder: Path) -> None:
    paths = [str(folder / name) for name in ("web", "wep", "alone", "x/y", "no_tokenizer", "no_tokenizer/x")]
    problems = check_files(DataConfig(source="indexed", path=paths))
    assert [problem.where for problem in problems] == [f"{path}.bin" for path in paths[1:]]
    assert [problem.fix for problem in problems] == [
        (f"data.path={folder}/web is in this folder",),
        ("alone.idx alone is no corpus: copy both files",),
        (f"the folder {folder}/x does not exist either",),
        ("it is a folder without any .idx",),
        (f"{folder}/no_tokenizer has no .idx at all",),
    ]


@pytest.mark.parametrize(
    ("tokenizer", "told"),
    [
        ("bytes", "did you mean data.tokenizer=byte?"),
        ("meta-llama/Llama-3.1-8B", "names on the Hugging Face hub are not downloaded"),
        ("{0}/tokenizer.json", "the folder has no tokenizer.json"),
        ("{0}/no_tokenizer", "the folder has no tokenizer.json"),
        ("{0}/none/tokenizer.json", "{0} is the last folder of"),
    ],
)
def test_a_tokenizer_that_is_not_there(folder: Path, tokenizer: str, told: str) -> None:
    (problem,) = check_files(DataConfig(source="text", path=str(folder), tokenizer=tokenizer.format(folder)))
    assert problem.where == "data.tokenizer"
    assert told.format(folder) in str(problem)


@pytest.mark.parametrize("data", [{}, {"source": "mock"}, {"path": "/nowhere"}, {"tokenizer": "/nowhere"}])
def test_what_has_no_effect_is_not_looked_for(data: dict[str, str]) -> None:
    assert check_files(DataConfig(**data)) == []  # type: ignore[arg-type]
