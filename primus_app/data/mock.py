"""A made-up language that a model can learn: a sparse Markov chain, generated on the fly from (seed, index)."""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from primus_app.data.prepared import SplitName

NUM_SUCCESSORS = 4
MAX_VOCAB_SIZE = 256
DRAWS_PER_WORD = 32


def mock_vocab_size(model_vocab_size: int) -> int:
    """Number of different tokens of the language for a model with ``model_vocab_size`` rows."""
    return min(model_vocab_size, MAX_VOCAB_SIZE)


def successors(vocab_size: int) -> NDArray[np.int64]:
    """The language: the equally likely next tokens of each token, shape [vocab_size, 4].

    Each token also has exactly four predecessors, so all tokens are equally frequent: a model that knows the frequencies alone
    reaches a loss of ln(vocab_size), one that knows the language ln(4). Depends on the vocabulary only, on no seed.
    """
    target = np.argsort(_words("language, targets", vocab_size), kind="stable")
    offset = np.argsort(_words("language, offsets", vocab_size), kind="stable")
    return target[(offset[:, None] + np.arange(NUM_SUCCESSORS)) % vocab_size]


def mock_digest(vocab_size: int) -> str:
    """Digest of the language, as PreparedData wants it."""
    return blake2b(successors(vocab_size).astype("<i8").tobytes(), digest_size=16).hexdigest()


class MockWindows:
    """Endless windows of the language; the last token of the vocabulary ends a document, on average every vocab_size tokens."""

    def __init__(self, vocab_size: int, seq_len: int, *, split: SplitName, seed: int, document_mask: bool = False) -> None:
        self.vocab_size = vocab_size
        self.seq_len = seq_len
        self.document_mask = document_mask
        self.end_of_document = vocab_size - 1
        # What is evaluated must not change with the seed of a run.
        self._stream = f"train, seed {seed}" if split == "train" else "valid"
        self._next = successors(vocab_size).reshape(-1).tolist()

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Tokens of window ``index`` (any number from 0), shape [seq_len + 1]."""
        words = _words(f"{self._stream}, window {index}", 1 + -(-self.seq_len // DRAWS_PER_WORD))
        token = int(words[0] % np.uint64(self.vocab_size))
        tokens = [token]
        for draw in _two_bit_draws(words[1:])[: self.seq_len].tolist():
            token = self._next[NUM_SUCCESSORS * token + draw]
            tokens.append(token)
        return np.array(tokens, dtype=np.int64)

    def positions(self, index: int) -> NDArray[np.int64]:
        """Position of each input of window ``index``, shape [seq_len]; under document_mask from 0 again after an end of document."""
        positions = np.arange(self.seq_len)
        if not self.document_mask:
            return positions
        starts = np.zeros(self.seq_len, dtype=np.int64)
        ends = np.flatnonzero(self[index][: self.seq_len - 1] == self.end_of_document)
        starts[ends + 1] = ends + 1
        return positions - np.maximum.accumulate(starts)


def _words(purpose: str, count: int) -> NDArray[np.uint64]:
    """``count`` random words that depend on ``purpose`` only. Philox's raw words never change between versions of numpy."""
    key = np.frombuffer(blake2b(f"primus_app mock {purpose}".encode(), digest_size=16).digest(), dtype="<u8")
    return np.random.Philox(key=key).random_raw(count)


def _two_bit_draws(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    octets = words.astype("<u8").view(np.uint8)
    draws = (octets[:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & np.uint8(3)
    return draws.reshape(-1).astype(np.uint8)
