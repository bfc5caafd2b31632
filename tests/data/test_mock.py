"""The made-up language."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from primus_app.data.mock import MockWindows, mock_digest, mock_vocab_size, successors


def windows(*, seed: int = 0, split: str = "train", seq_len: int = 256, vocab_size: int = 256, document_mask: bool = False) -> MockWindows:
    return MockWindows(vocab_size, seq_len, split=split, seed=seed, document_mask=document_mask)  # type: ignore[arg-type]


def conditional_entropy(tokens: np.ndarray) -> float:
    pairs = Counter(zip(tokens[:, :-1].ravel().tolist(), tokens[:, 1:].ravel().tolist(), strict=True))
    firsts = Counter(tokens[:, :-1].ravel().tolist())
    return -sum(count * math.log(count / firsts[first]) for (first, _), count in pairs.items()) / sum(pairs.values())


@pytest.mark.parametrize("vocab_size", [5, 64, 256])
def test_each_token_has_four_successors_and_four_predecessors(vocab_size: int) -> None:
    table = successors(vocab_size)
    assert all(len(set(row)) == 4 for row in table.tolist())
    assert np.bincount(table.ravel(), minlength=vocab_size).tolist() == [4] * vocab_size


def test_all_tokens_reach_each_other() -> None:
    reached, frontier = {0}, [0]
    table = successors(256).tolist()
    while frontier:
        new = set(table[frontier.pop()]) - reached
        reached |= new
        frontier += new
    assert len(reached) == 256  # with as many ways in as out, reachable from one means reachable from all


def test_every_step_follows_the_language() -> None:
    table = successors(256)
    tokens = windows()[3]
    assert tokens.dtype == np.int64
    assert tokens.shape == (257,)
    assert all(after in table[before] for before, after in pairwise(tokens.tolist()))


def test_conditional_entropy_is_ln_4() -> None:
    data = windows()
    tokens = np.stack([data[index] for index in range(400)])
    # Closed form ln 4; the plug-in estimate is low by about (cells - rows) / 2n = 768 / 204,800 = 0.004 (Miller and Madow, 1955).
    assert conditional_entropy(tokens) == pytest.approx(math.log(4), abs=0.006)
    assert conditional_entropy(tokens) < math.log(256) / 2
    frequencies = np.bincount(tokens.ravel(), minlength=256) / tokens.size
    assert -(frequencies * np.log(frequencies)).sum() == pytest.approx(math.log(256), abs=0.01)


def test_windows_depend_on_seed_and_index_alone() -> None:
    assert np.array_equal(windows(seed=5)[77], windows(seed=5)[77])
    assert np.array_equal(windows(seed=5, seq_len=64)[77], windows(seed=5)[77][:65])
    different = [windows(seed=5)[77], windows(seed=5)[78], windows(seed=6)[77], windows(split="valid")[77]]
    assert len({tokens.tobytes() for tokens in different}) == 4


def test_validation_does_not_depend_on_the_seed() -> None:
    assert np.array_equal(windows(split="valid", seed=1)[0], windows(split="valid", seed=2)[0])


def test_positions_restart_after_an_end_of_document() -> None:
    data = windows(vocab_size=5, seq_len=64, document_mask=True)
    tokens, expected, position = data[0], [], 0
    for token in tokens[:-1].tolist():
        expected.append(position)
        position = 0 if token == 4 else position + 1
    assert expected.count(0) > 1
    assert data.positions(0).tolist() == expected
    assert windows(vocab_size=5, seq_len=64).positions(0).tolist() == list(range(64))


def test_the_language_has_as_many_tokens_as_the_model_up_to_256() -> None:
    assert [mock_vocab_size(size) for size in (5, 256, 128_000)] == [5, 256, 256]
    assert mock_digest(256) != mock_digest(255)
