"""From folders of text to pairs: the tokens are those of one text at a time, whatever the batches, interruptions and processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from primus_app.config.errors import UserError
from primus_app.config.schema import DataConfig
from primus_app.data import PreparedData, prepare
from primus_app.data.indexed import IndexedPair, open_pair
from primus_app.data.text import build
from primus_app.data.text.build import is_valid
from primus_app.data.text.source import valid_share

TEXTS = [f"document {number}: the fox, größer als {number * number} 🦊" + " dog" * (number % 7) for number in range(120)]


def json_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


@pytest.fixture
def folder(corpus: Path) -> Path:
    """The documents of TEXTS in their order, over five files of four kinds."""
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    (corpus / "a.jsonl").write_bytes(json_lines(TEXTS[:50]))
    (corpus / "b.txt").write_text(TEXTS[50])
    (corpus / "c.jsonl.gz").write_bytes(gzip.compress(json_lines(TEXTS[51:80])))
    pq.write_table(pa.table({"text": TEXTS[80:119]}), corpus / "d.parquet", row_group_size=10)
    (corpus / "e.md").write_text(TEXTS[119])
    return corpus


def prepared(
    folder: Path,
    tmp_path: Path,
    split: tuple[float, float] = (90.0, 10.0),
    vocab_size: int = 300,
    global_batch_size: int = 1,
    **settings: Any,
) -> PreparedData:
    values = {"path": str(folder), "split": split, "cache_dir": str(tmp_path / "cache"), **settings}
    return prepare(DataConfig(source="text", **values), vocab_size=vocab_size, seq_len=8, global_batch_size=global_batch_size)


def mistake(*arguments: Any, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        prepared(*arguments, **settings)
    assert all(problem.fix for problem in caught.value.problems)
    return caught.value


def documents_of(pair: IndexedPair) -> list[list[int]]:
    starts = pair.document_starts(0, pair.num_documents + 1).tolist()
    return [pair.tokens[begin:end].tolist() for begin, end in pairwise(starts)]


def splits(data: PreparedData) -> tuple[list[list[int]], list[list[int]]]:
    assert data.valid is not None
    return documents_of(open_pair(data.train.prefix or "")), documents_of(open_pair(data.valid.prefix or ""))


def one_by_one(tokenizer_json: Path) -> list[list[int]]:
    """The tokenizers library, one text at a time, without the truncation and padding that the file asks for."""
    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    end = tokenizer.token_to_id("<|endoftext|>")
    return [[*tokenizer.encode(text, add_special_tokens=False).ids, end] for text in TEXTS]


@pytest.mark.parametrize("characters", [1, 700, 1 << 30])
def test_tokens_are_those_of_each_text_alone(
    folder: Path, tmp_path: Path, tokenizer_json: Path, monkeypatch: pytest.MonkeyPatch, characters: int
) -> None:
    monkeypatch.setattr(build, "BATCH_CHARACTERS", characters)
    got = prepared(folder, tmp_path, tokenizer=str(tokenizer_json))
    expected = one_by_one(tokenizer_json)
    held_back = [number for number in range(120) if number % 10 == 9]  # a tenth: each tenth document
    train, valid = splits(got)
    assert valid == [expected[number] for number in held_back]
    assert train == [expected[number] for number in range(120) if number not in held_back]
    assert (got.num_documents, got.vocab_size, got.tokenizer) == (120, 300, str(tokenizer_json))
    assert open_pair(got.train.prefix or "").tokens.dtype == np.uint16


def test_bytes(folder: Path, tmp_path: Path) -> None:
    train, valid = splits(prepared(folder, tmp_path, split=(1.0, 1.0)))
    assert [*zip(train, valid, strict=True)] == [
        ([*one.encode(), 256], [*other.encode(), 256]) for one, other in zip(TEXTS[::2], TEXTS[1::2], strict=True)
    ]


@pytest.mark.slow  # importing megatron.core takes seconds
def test_megatron_reads_it(folder: Path, tmp_path: Path) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    got = prepared(folder, tmp_path, split=(100.0, 0.0))
    dataset = IndexedDataset(got.train.prefix)
    assert [bytes(sequence[:-1].tolist()).decode() for sequence in dataset] == TEXTS
    assert dataset.document_indices.tolist() == list(range(121))


@pytest.mark.parametrize(("split", "share"), [((98.0, 2.0), Fraction(1, 50)), ((0.7, 0.3), Fraction(3, 10)), ((1.0, 0.0), Fraction(0))])
def test_shares_are_the_fractions_that_are_typed(split: tuple[float, float], share: Fraction) -> None:
    assert valid_share(split) == share


@pytest.mark.parametrize("share", [Fraction(1, 50), Fraction(3, 10), Fraction(999, 1000), Fraction(0)])
def test_the_share_is_kept_at_every_moment_and_the_first_is_for_training(share: Fraction) -> None:
    held_back = np.cumsum([is_valid(number, share) for number in range(3000)])
    exact = np.array([int((number + 1) * share) for number in range(3000)])
    assert np.array_equal(held_back, exact)
    assert held_back[0] == 0


def test_too_few_documents_for_the_share_are_cut_by_tokens(corpus: Path, tmp_path: Path) -> None:
    (corpus / "a.txt").write_text("a" * 600)
    (corpus / "b.txt").write_text("b" * 398)
    train, valid = splits(prepared(corpus, tmp_path, split=(80.0, 20.0)))  # 1000 tokens with both ends
    assert train == [[97] * 600 + [256], [98] * 199]
    assert valid == [[98] * 199 + [256]]
    (corpus / "b.txt").unlink()
    train, valid = splits(prepared(corpus, tmp_path, split=(98.0, 2.0)))
    assert (train, valid) == ([[97] * 589], [[97] * 11 + [256]])  # 601 · 0.02 = 12.02


def test_a_cut_between_documents(corpus: Path, tmp_path: Path) -> None:
    (corpus / "a.jsonl").write_bytes(json_lines(["x" * 99, "y" * 99, "z" * 99]))
    train, valid = splits(prepared(corpus, tmp_path, split=(2.0, 1.0)))
    assert valid == [[122] * 99 + [256]]
    assert len(train) == 2


def test_of_one_document_no_share_is_left_over(corpus: Path, tmp_path: Path) -> None:
    (corpus / "a.txt").write_text("a" * 100)
    assert prepared(corpus, tmp_path, split=(1.0, 0.0)).valid is None


def test_the_second_time_nothing_is_read(folder: Path, tmp_path: Path, tokenizer_json: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepared(folder, tmp_path, tokenizer=str(tokenizer_json))
    monkeypatch.setattr(build, "documents", None)
    monkeypatch.setattr("primus_app.data.text.files._digest", None)
    assert prepared(folder, tmp_path, tokenizer=str(tokenizer_json.parent)).digest == first.digest
    os.rename(folder, tmp_path / "moved")
    monkeypatch.undo()
    monkeypatch.setattr(build, "documents", None)
    assert prepared(tmp_path / "moved", tmp_path, tokenizer=str(tokenizer_json)) == first


def test_the_digest_follows_tokens_and_split(folder: Path, tmp_path: Path, tokenizer_json: Path) -> None:
    def digest(path: Path = folder, **settings: Any) -> str:
        return prepared(path, tmp_path, **settings).digest

    first = digest()
    assert digest(split=(9.0, 1.0)) == first
    assert len({first, digest(split=(95.0, 5.0)), digest(split=(1.0, 0.0)), digest(tokenizer=str(tokenizer_json))}) == 4
    listed = [str(folder / name) for name in ("a.jsonl", "b.txt", "c.jsonl.gz", "d.parquet", "e.md")]
    assert prepared(folder, tmp_path, path=listed).digest == first
    assert prepared(folder, tmp_path, path=listed[::-1]).digest != first


def test_all_broken_files_at_once_and_nothing_stays(folder: Path, tmp_path: Path) -> None:
    (folder / "a.jsonl").write_bytes(b'{"text": "cut')
    (folder / "b.txt").write_bytes(b"caf\xe9")
    (folder / "d.parquet").write_bytes(b"PAR1")
    error = mistake(folder, tmp_path)
    assert [problem.where for problem in error.problems] == [str(folder / name) for name in ("a.jsonl", "b.txt", "d.parquet")]
    assert not list((tmp_path / "cache").glob(".unfinished-*"))


def test_ids_beyond_the_vocabulary(folder: Path, tmp_path: Path, tokenizer_json: Path) -> None:
    error = mistake(folder, tmp_path, tokenizer=str(tokenizer_json), vocab_size=299)
    assert "model.vocab_size: 299 rows are too few" in str(error)
    assert "token ids from 0 to 299.\n  model.vocab_size=300 is the least that fits" in str(error)


def test_too_few_tokens(corpus: Path, tmp_path: Path) -> None:
    (corpus / "a.txt").write_text("a" * 99)
    told = "train.bin: the train split has 100 tokens in 1 documents; one global batch of 13 samples of 8 tokens needs 105."
    assert told in str(mistake(corpus, tmp_path, split=(1.0, 0.0), global_batch_size=13))
    assert prepared(corpus, tmp_path, split=(1.0, 0.0), global_batch_size=12)


def test_a_missing_path_and_tokenizer_at_once(tmp_path: Path) -> None:
    error = mistake(tmp_path / "nowhere", tmp_path, tokenizer=str(tmp_path / "none.json"))
    assert [problem.where for problem in error.problems] == ["data.path", "data.tokenizer"]


PROCESS = """
import json, os, signal, sys
from primus_app.config.schema import DataConfig
from primus_app.data import prepare
from primus_app.data.text import build
build.BATCH_CHARACTERS = build.CHECKPOINT_CHARACTERS = 300
calls = []
def progress(done, total):
    calls.append(done)
    if len(calls) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
data = DataConfig(source="text", path=sys.argv[2], tokenizer=sys.argv[3], cache_dir=sys.argv[4], split=(90.0, 10.0))
data = prepare(data, vocab_size=300, seq_len=8, global_batch_size=2, progress=progress)
print(json.dumps({"calls": calls, "data": data.to_dict()}))
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(folder: Path, tmp_path: Path, tokenizer_json: Path) -> Start:
    def run(last_call: int = -1) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PROCESS, str(last_call), str(folder), str(tokenizer_json), str(tmp_path / "cache")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])

    return run


def test_killed_twice_then_gone_on_with(start: Start, folder: Path, tmp_path: Path, tokenizer_json: Path) -> None:
    states = []
    for last_call in (5 + 6, 4):  # the first reads the five files for their digest too
        victim = start(last_call)
        victim.communicate()
        assert victim.returncode == -signal.SIGKILL
        (state,) = (tmp_path / "cache").glob(".unfinished-*/state.json")
        states.append(json.loads(state.read_text()))
    assert (0, 0) < (states[0]["file"], states[0]["documents"]) < (states[1]["file"], states[1]["documents"])
    result = json.loads(start().communicate()[0])
    assert result["calls"][0] > sum(file.stat().st_size for file in folder.iterdir()) / 3, "the beginning is not done again"
    got = PreparedData.from_dict(result["data"])
    expected = one_by_one(tokenizer_json)
    assert splits(got) == ([each for number, each in enumerate(expected) if number % 10 < 9], expected[9::10])
    assert got.digest == prepared(folder, tmp_path, tokenizer=str(tokenizer_json), cache_dir=str(tmp_path / "other")).digest
    assert not list((tmp_path / "cache").glob(".unfinished-*"))


def test_an_unfinished_folder_that_lost_its_tokens_begins_anew(start: Start, tmp_path: Path) -> None:
    start(5 + 6).communicate()
    (unfinished,) = (tmp_path / "cache").glob(".unfinished-*")
    os.truncate(unfinished / "train.bin", 10)
    result = json.loads(start().communicate()[0])
    assert result["calls"][0] < 1000
    assert result["data"]["num_documents"] == 120


def test_of_two_processes_one_tokenises(start: Start) -> None:
    results = [json.loads(process.communicate()[0]) for process in [start(), start()]]
    assert results[0]["data"] == results[1]["data"]
    # Both read the five files for their digest, where neither finds the other's.
    assert sorted(len(result["calls"]) > 5 for result in results) == [False, True]
