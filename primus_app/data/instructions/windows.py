"""Windows of whole examples, several in one or one in each, and which of their labels are learnt."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from primus_app.data.indexed import IndexedPair, open_pair
from primus_app.data.instructions.build import LEARNED
from primus_app.data.instructions.packing import Packing, one_each, pack

TooLong = Literal["refuse", "drop", "truncate"]


@dataclass(frozen=True)
class Fit:
    """What of each example is read.

    Attributes:
        starts: the first token of each example in the pair, int64 [examples].
        lengths: how many tokens are read from there, int64 [examples]; 0 for one that is left out.
        longest: the example with most tokens, and how many.
        too_long: how many examples have more tokens than a window.
        dropped: how many of those are left out; of those that are cut, the ones without a learnt token before the cut.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    longest: tuple[int, int]
    too_long: int
    dropped: int


class ExampleWindows:
    """Window i holds whole examples end to end and then padding; decided by their lengths alone.

    A window has ``seq_len`` + 1 tokens. The last token of an example has the first of the next as its label, which is not learnt.
    """

    def __init__(self, prefix: str, seq_len: int, *, packing: bool, too_long: TooLong, padding: int) -> None:
        self.seq_len, self.packing = seq_len, packing
        self._tokens, self._learned = open_pair(prefix), open_pair(f"{prefix}{LEARNED}")
        self._padding = padding
        fit = fit_examples(self._tokens, self._learned, seq_len, too_long)
        kept = np.flatnonzero(fit.lengths)
        self._starts, self._lengths = fit.starts[kept], fit.lengths[kept]
        self._packing: Packing = pack(self._lengths, seq_len + 1) if packing else one_each(len(kept))

    def __len__(self) -> int:
        return len(self._packing)

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Tokens of window ``index``, shape [seq_len + 1]: inputs are all but the last, labels all but the first."""
        return self._gathered(self._tokens, index, self._padding)

    def learned(self, index: int) -> NDArray[np.bool_]:
        """Which labels of window ``index`` are learnt, shape [seq_len]."""
        found = self._gathered(self._learned, index, 0)
        for begin, _ in self._parts(index):
            found[begin] = 0  # No example is learnt from the one before it.
        return found[1:].astype(bool)

    def positions(self, index: int) -> NDArray[np.int64]:
        """Position of each input of window ``index``, shape [seq_len]; in a packed one from 0 again at each example and at the padding."""
        positions = np.arange(self.seq_len + 1)
        if self.packing:
            for begin, example in self._parts(index):
                end = begin + int(self._lengths[example])
                positions[end:] = np.arange(self.seq_len + 1 - end)
        return positions[: self.seq_len]

    def _parts(self, index: int) -> list[tuple[int, int]]:
        """(first token in the window, number among those kept) of each example of window ``index``."""
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        examples = self._packing.examples[self._packing.starts[index] : self._packing.starts[index + 1]]
        begins = np.concatenate([[0], np.cumsum(self._lengths[examples])[:-1]])
        return list(zip(begins.tolist(), examples.tolist(), strict=True))

    def _gathered(self, pair: IndexedPair, index: int, padding: int) -> NDArray[np.int64]:
        found = np.full(self.seq_len + 1, padding, dtype=np.int64)
        for begin, example in self._parts(index):
            start, length = int(self._starts[example]), int(self._lengths[example])
            found[begin : begin + length] = pair.tokens[start : start + length]
        return found


def fit_examples(tokens: IndexedPair, learned: IndexedPair, seq_len: int, too_long: TooLong) -> Fit:
    """What of each example is read in windows of ``seq_len`` + 1 tokens; under refuse, as under drop, too long ones are left out."""
    lengths = np.asarray(tokens.lengths, dtype=np.int64)
    most, longest = seq_len + 1, int(lengths.argmax())
    starts = np.cumsum(lengths) - lengths
    beyond = np.flatnonzero(lengths > most)
    read = np.minimum(lengths, most)
    for example, start in zip(beyond.tolist(), starts[beyond].tolist(), strict=True):
        # The first token is no label, as nothing comes before it.
        if too_long != "truncate" or not learned.tokens[start + 1 : start + most].any():
            read[example] = 0
    return Fit(starts, read, (longest, int(lengths[longest])), len(beyond), int((read == 0).sum()))
