"""Fixed-length windows over the tokens of a split, and the positions of their tokens."""

import numpy as np
from numpy.typing import NDArray

from primus_app.data.indexed import IndexedPair


def num_windows(num_tokens: int, seq_len: int) -> int:
    """Windows of ``seq_len`` inputs in ``num_tokens`` tokens; the last label of a window is the first input of the next."""
    return max(0, num_tokens - 1) // seq_len


class Windows:
    """Window i holds tokens [i·seq_len, i·seq_len + seq_len + 1) of documents [first_document, end_document), end to end.

    Tokens stay in the memory-mapped file until a window is read.
    """

    def __init__(self, pair: IndexedPair, first_document: int, end_document: int, seq_len: int, *, document_mask: bool = False) -> None:
        self.pair = pair
        self.seq_len = seq_len
        self.document_mask = document_mask
        self._first = pair.document_start(first_document)
        self.num_tokens = pair.document_start(end_document) - self._first

    def __len__(self) -> int:
        return num_windows(self.num_tokens, self.seq_len)

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Tokens of window ``index``, shape [seq_len + 1]: inputs are all but the last, labels all but the first."""
        start = self._start(index)
        return self.pair.tokens[start : start + self.seq_len + 1].astype(np.int64)

    def positions(self, index: int) -> NDArray[np.int64]:
        """Position of each input of window ``index``, shape [seq_len]: 0 … seq_len-1, or under document_mask from 0 again at
        each document's first token. Borders come from the .idx, so they need no end-of-document ids."""
        start = self._start(index)
        positions = np.arange(self.seq_len)
        if not self.document_mask:
            return positions
        starts = np.zeros(self.seq_len, dtype=np.int64)
        borders = self.pair.document_starts_between(start, start + self.seq_len) - start
        starts[borders] = borders
        return positions - np.maximum.accumulate(starts)

    def _start(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        return self._first + index * self.seq_len
