"""Seeded normals: the same bits in every slice, and the distribution that they should have."""

import numpy as np
import pytest

from primus_app.backends.seeded import CHUNK, seeded_normal

NAME = "model.layers.0.mlp.up_proj.weight"
SHAPE = (700, 300)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (1, 2), (3, 11), (4, 8), (CHUNK - 1, CHUNK + 2), (199_999, 210_000), (5, 5)])
def test_slice_has_the_bits_of_the_whole(start: int, stop: int) -> None:
    whole = seeded_normal(7, NAME, SHAPE, 0.02).ravel()
    assert np.array_equal(seeded_normal(7, NAME, SHAPE, 0.02, start, stop), whole[start:stop])


def test_whole_has_its_shape_and_type() -> None:
    whole = seeded_normal(7, NAME, SHAPE, 0.02)
    assert whole.shape == SHAPE
    assert whole.dtype == np.float32


def test_distribution_is_normal() -> None:
    sample = seeded_normal(1, NAME, (1_000_000,), 0.02) / 0.02
    # Standard errors of a million normals: mean 1e-3, deviation 7e-4, kurtosis 5e-3; bounds are five of them.
    assert abs(sample.mean()) < 5e-3
    assert abs(sample.std() - 1) < 3.5e-3
    assert abs((sample**4).mean() - 3) < 5e-2
    # P(|z| > 1.959964) = 5 %.
    assert abs((np.abs(sample) > 1.959964).mean() - 0.05) < 1.1e-3


def test_neighbours_are_uncorrelated() -> None:
    sample = seeded_normal(1, NAME, (1_000_000,), 1.0)
    assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 5e-3


def test_seed_and_name_both_matter() -> None:
    values = [seeded_normal(seed, name, (64,), 1.0) for seed in (1, 2) for name in (NAME, NAME + "_")]
    assert len({value.tobytes() for value in values}) == 4


def test_first_numbers_do_not_change() -> None:
    # The recipe is part of every run's what: another recipe here means another loss curve for the same seed. The values
    # are this formula in float64 on the first four words of Philox4x64-10 as numpy gives them.
    words = np.random.Philox(key=np.frombuffer(_digest(), dtype=np.uint64)).random_raw(4)
    u1 = ((words >> np.uint64(40)) + 1.0) / 2**24
    u2 = (words & np.uint64(0xFFFFFF)) / 2**24
    expected = np.sqrt(-2 * np.log(u1)) * np.cos(2 * np.pi * u2)
    assert seeded_normal(1234, NAME, (4,), 1.0) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_elements_outside_the_tensor_are_refused() -> None:
    with pytest.raises(ValueError, match="not within a tensor of 4"):
        seeded_normal(1, NAME, (4,), 1.0, 2, 5)


def _digest() -> bytes:
    from hashlib import blake2b

    return blake2b(f"1234:{NAME}".encode(), digest_size=16).digest()
