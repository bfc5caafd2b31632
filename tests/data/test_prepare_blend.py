"""Several indexed pairs as one source: what is prepared, refused, and read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from primus_app.config.errors import UserError
from primus_app.config.schema import DataConfig
from primus_app.data import PreparedData, SplitData, open_samples, prepare
from primus_app.data.blend import Blend
from primus_app.data.order import SampleOrder
from primus_app.data.samples import BlendedSamples

A = [[10 * number + place for place in range(5)] for number in range(20)]
B = [[1000 + 10 * number + place for place in range(4)] for number in range(10)]


@pytest.fixture
def paths(write_pair) -> list[str]:
    return [write_pair(A, name="a"), write_pair(B, name="b", dtype="uint16")]


def prepared(paths: list[str], weights: list[float] | None = None, split: tuple[float, float] = (3.0, 1.0), **limits: Any) -> PreparedData:
    data = DataConfig(source="indexed", path=paths, weights=weights, split=split, cache_dir=str(Path(paths[0]).parent / "cache"))
    return prepare(data, **{"vocab_size": 2000, "seq_len": 4, "global_batch_size": 2, **limits})


def test_each_pair_is_divided_and_the_weights_are_kept(paths: list[str]) -> None:
    got = prepared(paths, [7, 3])
    a, b = paths
    assert got.train == SplitData(num_tokens=107, parts=(SplitData(a, 0, 15, 75), SplitData(b, 0, 8, 32)), weights=(7, 3))
    assert got.valid == SplitData(num_tokens=33, parts=(SplitData(a, 15, 20, 25), SplitData(b, 8, 10, 8)), weights=(7, 3))
    assert (got.num_documents, got.vocab_size) == (30, 1094)
    assert PreparedData.from_dict(json.loads(json.dumps(got.to_dict()))) == got


def test_without_weights_each_by_its_tokens(paths: list[str]) -> None:
    got = prepared(paths)
    assert got.train.weights == (75, 32)
    assert got.valid is not None
    assert got.valid.weights == (25, 8)


def test_one_path_in_a_list_is_that_path(paths: list[str]) -> None:
    data = DataConfig(source="indexed", path=paths[0], split=(3.0, 1.0), cache_dir=str(Path(paths[0]).parent / "cache"))
    assert prepared(paths[:1]) == prepare(data, vocab_size=2000, seq_len=4, global_batch_size=2)


def test_the_digest_follows_contents_weights_and_their_order(paths: list[str], write_pair) -> None:
    first = prepared(paths, [7, 3]).digest
    moved = [write_pair(A, name="c"), write_pair(B, name="d")]
    assert prepared(moved, [0.7, 0.3]).digest == first
    others = [
        prepared(paths, [3, 7]),
        prepared(paths[::-1], [3, 7]),
        prepared(paths[::-1], [7, 3]),
        prepared(paths),
        prepared(paths, [7, 3], (1.0, 0.0)),
        prepared([paths[0], write_pair(B[::-1], name="e")], [7, 3]),
    ]
    assert len({first, *(other.digest for other in others)}) == 7


def test_samples_come_from_each_pair_in_its_own_order(paths: list[str]) -> None:
    got = prepared(paths, [7, 3])
    blended = open_samples(got, "train", seq_len=4, seed=9, document_mask=False)
    blend, windows = Blend([7, 3]), {0: np.concatenate(A)[:75], 1: np.concatenate(B)[:32]}
    read: dict[int, list[int]] = {0: [], 1: []}
    for index in range(200):
        part, number = blend.locate(index)
        tokens = blended.sample(index).tokens.tolist()
        assert number == len(read[part])
        read[part].append(windows[part].tolist().index(tokens[0]) // 4)
        assert tokens == windows[part][4 * read[part][-1] :][:5].tolist()
    for part, size in ((0, 18), (1, 7)):  # windows of 4 in 75 and 32 tokens
        for epoch in range(len(read[part]) // size):
            assert sorted(read[part][epoch * size : (epoch + 1) * size]) == list(range(size)), "each window once an epoch"


def test_two_pairs_of_one_size_are_not_read_in_the_same_order(write_pair) -> None:
    twins = [write_pair([[*range(1000)]] * 2, name=name) for name in ("a", "b")]
    blended = open_samples(prepared(twins, [1, 1], (1.0, 0.0)), "train", seq_len=4, seed=9, document_mask=False)
    first, second = ([blended.sample(2 * turn + part).tokens[0] for turn in range(50)] for part in range(2))
    assert first != second


def test_validation_reads_each_pair_in_an_order_of_its_own_and_never_ends(paths: list[str]) -> None:
    got = prepared(paths, [1, 1])
    blended = open_samples(got, "valid", seq_len=4, seed=1, document_mask=True)
    assert isinstance(blended, BlendedSamples)
    assert blended.num_windows is None
    size = blended.parts[0].num_windows
    assert size is not None
    starts = [int(blended.sample(index).tokens[0]) for index in range(2 * size)]
    assert sorted(starts[::2]) == sorted(int(blended.parts[0].sample(index).tokens[0]) for index in range(size))
    assert [blended.parts[0].window_of(index) for index in range(size)] == [SampleOrder(size, 0).window_of(i) for i in range(size)]
    assert starts[1::2] == [1080] * size  # b has 8 tokens, so one window
    other = open_samples(got, "valid", seq_len=4, seed=2, document_mask=True)
    assert [int(other.sample(index).tokens[0]) for index in range(2 * size)] == starts


def mistakes(paths: list[str], **limits: Any) -> list[str]:
    with pytest.raises(UserError) as caught:
        prepared(paths, [1, 1], **limits)
    assert all(problem.fix for problem in caught.value.problems)
    return [f"{Path(problem.where).name}: {problem.what}" for problem in caught.value.problems]


def test_all_broken_pairs_at_once(paths: list[str]) -> None:
    Path(f"{paths[0]}.idx").write_bytes(b"nonsense")
    Path(f"{paths[1]}.bin").write_bytes(b"123")
    assert [mistake.partition(":")[0] for mistake in mistakes(paths)] == ["a.idx", "b.bin"]


def test_ids_beyond_the_vocabulary_of_each_pair(paths: list[str]) -> None:
    assert [mistake[:20] for mistake in mistakes(paths, vocab_size=100)] == ["a.bin: has token id ", "b.bin: has token id "]


def test_too_few_tokens_together_or_in_one(paths: list[str]) -> None:
    told = "data.path: the train split has 107 tokens in 23 documents; one global batch of 26 samples of 4 tokens needs 105."
    assert mistakes(paths, global_batch_size=26) == [told]
    assert mistakes(paths, seq_len=8) == ["b.bin: the valid split has 8 tokens in 2 documents; one sample of 8 tokens needs 9."]
