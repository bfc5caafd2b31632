"""Preparation of each source, end to end, and what samples are read from it."""

import json
from pathlib import Path

import numpy as np
import pytest

from primus_app.config.errors import UserError
from primus_app.config.schema import DataConfig
from primus_app.data import PreparedData, SplitData, open_samples, prepare
from primus_app.data.order import SampleOrder

DOCUMENTS = [[10 * d + i for i in range(5)] for d in range(20)]


def indexed(prefix: str, tmp_path: Path, split: tuple[float, float] = (75.0, 25.0)) -> DataConfig:
    return DataConfig(source="indexed", path=prefix, split=split, cache_dir=str(tmp_path / "cache"))


def prepared(data: DataConfig, *, vocab_size: int = 1000, seq_len: int = 4, global_batch_size: int = 2) -> PreparedData:
    return prepare(data, vocab_size=vocab_size, seq_len=seq_len, global_batch_size=global_batch_size)


def test_indexed_splits_documents_as_they_are(write_pair, tmp_path: Path) -> None:
    prefix = write_pair(DOCUMENTS)
    got = prepared(indexed(f"{prefix}.bin", tmp_path))
    assert got.train == SplitData(prefix, 0, 15, 75)
    assert got.valid == SplitData(prefix, 15, 20, 25)
    assert (got.source, got.tokenizer, got.vocab_size, got.num_documents) == ("indexed", None, 195, 20)
    assert PreparedData.from_dict(json.loads(json.dumps(got.to_dict()))) == got


def test_no_validation(write_pair, tmp_path: Path) -> None:
    got = prepared(indexed(write_pair(DOCUMENTS), tmp_path, (1.0, 0.0)))
    assert got.train.end_document == 20
    assert got.valid is None
    assert PreparedData.from_dict(got.to_dict()) == got


@pytest.mark.parametrize(("shares", "train"), [((999.0, 1.0), 19), ((1.0, 999.0), 1), ((1.0, 1.0), 10)])
def test_each_split_with_a_share_has_a_document(write_pair, tmp_path: Path, shares: tuple[float, float], train: int) -> None:
    got = prepared(indexed(write_pair(DOCUMENTS), tmp_path, shares), seq_len=1)
    assert got.train.end_document == train


def test_one_document_cannot_be_divided(write_pair, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.split: .*single document"):
        prepared(indexed(write_pair([[1] * 100]), tmp_path))


def test_too_few_tokens(write_pair, tmp_path: Path) -> None:
    # 75 training tokens hold 18 windows of 4; a batch of 19 needs 19 · 4 + 1 = 77 tokens.
    data = indexed(write_pair(DOCUMENTS), tmp_path)
    with pytest.raises(UserError) as caught:
        prepared(data, global_batch_size=19)
    text = str(caught.value)
    assert "corpus.bin: the train split has 75 tokens in 15 documents; one global batch of 19 samples of 4 tokens needs 77." in text
    assert "training.global_batch_size=18" in text
    with pytest.raises(UserError, match="the valid split has 25 tokens"):
        prepared(data, global_batch_size=18)
    assert prepared(indexed(data.path or "", tmp_path, (1.0, 0.0)), global_batch_size=24)


def test_ids_beyond_the_vocabulary(write_pair, tmp_path: Path) -> None:
    data = indexed(write_pair(DOCUMENTS), tmp_path)
    assert prepared(data, vocab_size=195)
    with pytest.raises(UserError, match=r"token id 194 at byte 396 \(token 99\), but model.vocab_size=194"):
        prepared(data, vocab_size=194)


def test_settings_are_checked_first() -> None:
    with pytest.raises(UserError, match=r"data.path: "):
        prepared(DataConfig(source="indexed"))


def test_digest_follows_content_and_split_not_place(write_pair, tmp_path: Path) -> None:
    def digest(documents: list[list[int]], name: str = "a", split: tuple[float, float] = (75.0, 25.0)) -> str:
        return prepared(indexed(write_pair(documents, name=name), tmp_path, split)).digest

    assert digest(DOCUMENTS) == digest(DOCUMENTS, "b") == digest(DOCUMENTS, split=(3.0, 1.0))
    changed = [*DOCUMENTS[:-1], [1, 2, 3, 4, 5]]
    assert len({digest(DOCUMENTS), digest(changed, "c"), digest(DOCUMENTS, split=(1.0, 1.0)), digest(DOCUMENTS, split=(1.0, 0.0))}) == 4


def test_each_split_reads_each_window_once_an_epoch_and_validation_the_same_for_all_seeds(write_pair, tmp_path: Path) -> None:
    got = prepared(indexed(write_pair(DOCUMENTS), tmp_path))
    stream = np.concatenate(DOCUMENTS)
    for name, windows, first in (("train", 18, 0), ("valid", 6, 75)):
        split = open_samples(got, name, seq_len=4, seed=1, document_mask=False)
        assert split.num_windows == windows
        for epoch in (0, 1):
            read = {tuple(split.sample(index).tokens.tolist()) for index in range(windows * epoch, windows * (epoch + 1))}
            assert read == {tuple(stream[at : at + 5].tolist()) for at in range(first, first + 4 * windows, 4)}
    orders = [[open_samples(got, "valid", seq_len=4, seed=seed, document_mask=False).window_of(i) for i in range(12)] for seed in (1, 2)]
    assert orders[0] == orders[1] == [SampleOrder(6, 0).window_of(i) for i in range(12)]


def test_document_mask_reaches_the_positions(write_pair, tmp_path: Path) -> None:
    got = prepared(indexed(write_pair(DOCUMENTS), tmp_path))
    place = [SampleOrder(6, 0).window_of(i) for i in range(6)].index(1)
    masked = open_samples(got, "valid", seq_len=4, seed=0, document_mask=True).sample(place)
    assert masked.tokens.tolist() == [154, 160, 161, 162, 163]
    assert masked.positions.tolist() == [0, 0, 1, 2]
    assert masked.positions.dtype == np.int64
    assert open_samples(got, "valid", seq_len=4, seed=0, document_mask=False).sample(place).positions.tolist() == [0, 1, 2, 3]


def test_files_that_changed_after_preparation(write_pair, tmp_path: Path) -> None:
    got = prepared(indexed(write_pair(DOCUMENTS), tmp_path))
    write_pair([*DOCUMENTS[1:], [1, 2]])
    with pytest.raises(UserError, match=r"corpus.idx: is no longer what was prepared: 25 tokens"):
        open_samples(got, "valid", seq_len=4, seed=0, document_mask=False)
    Path(f"{got.train.prefix}.bin").unlink()
    with pytest.raises(UserError, match=r"corpus.bin: does not exist"):
        open_samples(got, "train", seq_len=4, seed=0, document_mask=False)


def test_mock_is_endless_and_the_same_every_time() -> None:
    got = prepared(DataConfig(source="mock"), vocab_size=320)
    assert (got.train, got.valid, got.vocab_size, got.num_documents) == (SplitData(), SplitData(), 256, None)
    assert PreparedData.from_dict(json.loads(json.dumps(got.to_dict()))) == got
    samples = [open_samples(got, "train", seq_len=64, seed=9, document_mask=True) for _ in range(2)]
    assert samples[0].num_windows is None
    one, other = (samples[i].sample(10**15) for i in range(2))
    assert np.array_equal(one.tokens, other.tokens)
    assert one.tokens.shape == (65,)
    assert one.positions.shape == (64,)
    assert prepared(DataConfig(source="mock", split=(1.0, 0.0))).valid is None
