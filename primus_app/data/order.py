"""The order of samples: for each epoch a permutation of the windows, computed index by index from (seed, epoch)."""

from functools import lru_cache
from hashlib import blake2b
from typing import overload

import numpy as np
from numpy.typing import NDArray

NUM_ROUNDS = 8


def global_sample_index(step: int, global_batch_size: int, position: int = 0) -> int:
    """Index of the sample at ``position`` of the global batch of ``step``; steps count from 1, samples and positions from 0."""
    return (step - 1) * global_batch_size + position


class SampleOrder:
    """Which window is read as the n-th sample of a run, in O(1) memory and for any n; the total is not needed.

    ``part`` counts the corpora of a blend, so that two of the same size are not read in the same order.
    """

    def __init__(self, num_windows: int, seed: int, part: int = 0) -> None:
        assert num_windows > 0
        self.num_windows = num_windows
        self.seed = seed
        self.part = part

    @overload
    def window_of(self, index: int) -> int: ...
    @overload
    def window_of(self, index: NDArray[np.integer]) -> NDArray[np.int64]: ...
    def window_of(self, index: int | NDArray[np.integer]) -> int | NDArray[np.int64]:
        """Window of global sample ``index`` (an int, or an array of any shape); each epoch reads each window once."""
        indices = np.asarray(index, dtype=np.int64)
        epochs, places = np.divmod(indices.reshape(-1), self.num_windows)
        windows = np.empty_like(places)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            windows[chosen] = permute(places[chosen], self.num_windows, round_keys(self.seed, int(epoch), self.part))
        return int(windows[0]) if indices.ndim == 0 else windows.reshape(indices.shape)


@lru_cache(maxsize=16)
def round_keys(seed: int, epoch: int, part: int = 0) -> NDArray[np.uint64]:
    """One 64-bit key for each round of the permutation of ``epoch``."""
    text = f"primus_app sample order, seed {seed}, epoch {epoch}{f', part {part}' if part else ''}"
    return np.frombuffer(blake2b(text.encode(), digest_size=8 * NUM_ROUNDS).digest(), dtype="<u8")


def permute(places: NDArray[np.int64], size: int, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Images of ``places`` (1-D, each in [0, size)) under the permutation that ``keys`` choose.

    A Feistel network permutes the next power of four; whoever lands outside [0, size) walks on along its cycle until it is
    inside (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
    """
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    images = _feistel(places.astype(np.uint64), half_bits, keys)
    while (outside := images >= size).any():
        images[outside] = _feistel(images[outside], half_bits, keys)
    return images.astype(np.int64)


def _feistel(values: NDArray[np.uint64], half_bits: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right + key) & mask)
    return (left << shift) | right


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014); arithmetic wraps at 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
