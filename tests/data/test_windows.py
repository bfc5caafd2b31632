"""Windows and positions against a brute-force concatenation."""

import pickle

import numpy as np
import pytest

from primus_app.data.indexed import open_pair
from primus_app.data.windows import Windows, num_windows

DOCUMENTS = [[1, 2, 3, 9], [4, 9], [], [5, 6, 7, 8, 10, 11, 9], [9], [12, 13, 14, 15, 16, 9]]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize(("first", "end"), [(0, 6), (1, 5), (3, 6), (2, 4)])
@pytest.mark.parametrize("seq_len", [1, 2, 3, 5])
def test_against_brute_force(write_pair, dtype: str, sequences: int, first: int, end: int, seq_len: int) -> None:
    pair = open_pair(write_pair(DOCUMENTS, dtype, sequences=sequences))
    stream = [token for document in DOCUMENTS[first:end] for token in document]
    place = [position for document in DOCUMENTS[first:end] for position in range(len(document))]
    plain, masked = Windows(pair, first, end, seq_len), Windows(pair, first, end, seq_len, document_mask=True)
    assert len(plain) == (len(stream) - 1) // seq_len
    for index in range(len(plain)):
        start = index * seq_len
        assert plain[index].tolist() == stream[start : start + seq_len + 1]
        assert plain[index].dtype == np.int64
        assert plain.positions(index).tolist() == list(range(seq_len))
        # A document that began before the window goes on from 0 at its start.
        assert masked.positions(index).tolist() == [min(place[start + j], j) for j in range(seq_len)]


def test_the_last_label_may_be_the_last_token_of_the_split(write_pair) -> None:
    pair = open_pair(write_pair([[1, 2, 3], [4, 5]]))
    assert Windows(pair, 0, 2, 2)[1].tolist() == [3, 4, 5]
    assert len(Windows(pair, 0, 2, 3)) == 1


def test_there_is_no_window_past_the_end(write_pair) -> None:
    windows = Windows(open_pair(write_pair([[1, 2, 3], [4, 5]])), 0, 2, 2)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            windows[index]
        with pytest.raises(IndexError):
            windows.positions(index)


def test_number_of_windows() -> None:
    assert [num_windows(tokens, 4) for tokens in (0, 1, 4, 5, 8, 9)] == [0, 0, 0, 1, 1, 2]


def test_the_corpus_is_mapped_not_copied(write_pair) -> None:
    windows = Windows(open_pair(write_pair([list(range(100_000))])), 0, 1, 8)
    assert isinstance(windows.pair.tokens, np.memmap)
    sent = pickle.dumps(windows)
    assert len(sent) < 1000
    assert np.array_equal(pickle.loads(sent)[5], np.arange(40, 49))
