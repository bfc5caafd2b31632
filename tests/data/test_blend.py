"""Which corpus a sample comes from, against the rule that always serves the one furthest behind its weight."""

from fractions import Fraction

import numpy as np
import pytest

from primus_app.data.blend import Blend

WEIGHTS = [[0.7, 0.3], [1.0], [1.0, 1.0], [2.0, 3.0], [0.2, 0.5, 0.3], [1e-3, 1.0, 0.5], [5.0, 1.0, 1.0, 1.0, 0.1], [17_000, 3, 996]]


def located(weights: list[float], num_samples: int, first: int = 0) -> np.ndarray:
    """(corpus, number) of each sample, shape [num_samples, 2]."""
    blend = Blend(weights)
    return np.array([blend.locate(first + index) for index in range(num_samples)])


@pytest.mark.parametrize("weights", WEIGHTS)
def test_each_corpus_is_read_in_its_own_order_without_gap(weights: list[float]) -> None:
    found = located(weights, 3000)
    for part in range(len(weights)):
        numbers = found[found[:, 0] == part, 1]
        assert numbers.tolist() == list(range(len(numbers)))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_weights_hold_at_every_moment(weights: list[float]) -> None:
    chosen = located(weights, 3000)[:, 0]
    counts = np.cumsum(chosen[:, None] == np.arange(len(weights)), axis=0)
    due = np.arange(1, 3001)[:, None] * np.array(weights) / sum(weights)
    assert np.abs(counts - due).max() <= (0.5 if len(weights) < 3 else 1.5) + 1e-9


def test_of_two_it_is_the_one_furthest_behind() -> None:
    """Serving the largest of weight·(i+1) - count keeps two corpora within 1/2 of their due, which is rounding; ties aside."""
    weights = [Fraction("0.7"), Fraction("0.3")]
    counts, expected = [0, 0], []
    for index in range(1000):
        behind = [weight * (index + 1) - count for weight, count in zip(weights, counts, strict=True)]
        expected.append(max(range(2), key=lambda part: behind[part]))
        counts[expected[-1]] += 1
    assert located([0.7, 0.3], 1000)[:, 0].tolist() == expected


def test_by_hand() -> None:
    """Of two parts to one, the first has round(2(i+1)/3) of i+1 samples: 1, 1, 2, 3, 3, 4."""
    assert located([2, 1], 6).tolist() == [[0, 0], [1, 0], [0, 1], [0, 2], [1, 1], [0, 3]]


def test_only_proportions_count_and_any_place_is_known_at_once() -> None:
    assert np.array_equal(located([0.7, 0.3], 100), located([7, 3], 100))
    far = 10**15
    assert Blend([0.7, 0.3]).locate(far + 3) in ((0, 7 * 10**14 + 2), (0, 7 * 10**14 + 3), (1, 3 * 10**14 + 1), (1, 3 * 10**14))
    assert located([0.2, 0.5, 0.3], 50, first=10 * far)[:, 0].tolist() == located([0.2, 0.5, 0.3], 50)[:, 0].tolist()  # a period of 10
