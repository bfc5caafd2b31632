"""Normal numbers that depend on (seed, name, index) alone, so that any rank can make any slice of any weight."""

from hashlib import blake2b

import numpy as np
from numpy.random import Philox

CHUNK = 1 << 16
"""Elements made at a time, to stay in the processor's cache; the numbers do not depend on it."""

_WORDS_PER_COUNTER = 4
_TO_UNIT = np.float32(2**-24)


def seeded_normal(seed: int, name: str, shape: tuple[int, ...], std: float, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Float32 normals of mean 0: the whole tensor in ``shape``, or its elements start to stop (row-major) as 1-D.

    Element i is Box-Muller (cosine branch) of the i-th 64-bit word of Philox4x64 keyed by blake2b of "seed:name": the upper and
    lower 24 bits are its two uniforms. Any slice alone has the same bits as in the whole; across CPU families the last
    bit may differ, since logarithm and cosine are the machine's.
    """
    size = int(np.prod(shape, dtype=np.int64))
    end = size if stop is None else stop
    if not 0 <= start <= end <= size:
        raise ValueError(f"{name}: elements {start} to {end} are not within a tensor of {size}")
    out = np.empty(end - start, dtype=np.float32)
    words = _words_from(seed, name, start)
    scale = np.float32(std)
    for first in range(0, out.size, CHUNK):
        part = out[first : first + CHUNK]
        np.multiply(_box_muller(words.random_raw(part.size)), scale, out=part)
    return out.reshape(shape) if (start, end) == (0, size) else out


def _words_from(seed: int, name: str, index: int) -> Philox:
    key = np.frombuffer(blake2b(f"{seed}:{name}".encode(), digest_size=16).digest(), dtype="<u8").astype(np.uint64)
    generator = Philox(key=key)
    generator.advance(index // _WORDS_PER_COUNTER)
    if skip := index % _WORDS_PER_COUNTER:
        generator.random_raw(skip)
    return generator


def _box_muller(words: np.ndarray) -> np.ndarray:
    # The first uniform is in (0, 1], so its logarithm is finite.
    u1 = ((words >> np.uint64(40)).astype(np.float32) + np.float32(1)) * _TO_UNIT
    u2 = (words & np.uint64(0xFFFFFF)).astype(np.float32) * _TO_UNIT
    return np.sqrt(np.float32(-2) * np.log(u1)) * np.cos(np.float32(2 * np.pi) * u2)
