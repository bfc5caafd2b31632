"""The samples of one split, by their global index: what a rank reads for its part of a global batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from primus_app.config.errors import Problem, UserError
from primus_app.data.blend import Blend
from primus_app.data.indexed import open_pair
from primus_app.data.instructions.source import open_examples
from primus_app.data.instructions.windows import ExampleWindows
from primus_app.data.mock import MockWindows
from primus_app.data.order import SampleOrder
from primus_app.data.prepared import PreparedData, SplitData, SplitName
from primus_app.data.windows import Windows

VALIDATION_SEED = 0
BLOCK = 1024
"""Neighbouring samples whose windows are worked out together: as quick as one alone."""


IGNORED = -100
"""A label that does not count, as torch's cross entropy has it."""


@dataclass(frozen=True)
class Sample:
    """``tokens`` [seq_len + 1], of which the inputs are ``tokens[:-1]``, and ``positions`` [seq_len] of the inputs; int64.

    ``learned`` [seq_len] says which labels count towards the loss; None for all.
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    learned: NDArray[np.bool_] | None = None

    @property
    def labels(self) -> NDArray[np.int64]:
        """The next token of each input, IGNORED where it does not count; [seq_len]."""
        return self.tokens[1:] if self.learned is None else np.where(self.learned, self.tokens[1:], IGNORED)


class Samples:
    """All samples of a split, shuffled anew in each epoch; the validation's order is the same for all runs."""

    def __init__(self, windows: Windows | ExampleWindows | MockWindows, order: SampleOrder | None) -> None:
        self._windows = windows
        self._order = order
        self._block: tuple[int, NDArray[np.int64]] | None = None
        self.num_windows = None if isinstance(windows, MockWindows) else len(windows)

    def window_of(self, global_index: int) -> int:
        """Window that is read as sample ``global_index``, counting from 0."""
        if self._order is None:
            return global_index
        number, place = divmod(global_index, BLOCK)
        if self._block is None or self._block[0] != number:
            self._block = number, self._order.window_of(np.arange(number * BLOCK, (number + 1) * BLOCK))
        return int(self._block[1][place])

    def sample(self, global_index: int) -> Sample:
        """Sample ``global_index`` of the run; see ``order.global_sample_index``."""
        window, windows = self.window_of(global_index), self._windows
        learned = windows.learned(window) if isinstance(windows, ExampleWindows) else None
        return Sample(windows[window], windows.positions(window), learned)


class BlendedSamples:
    """Samples of several corpora, each in its own order; ``Blend`` says which corpus is read as sample i. It never ends."""

    num_windows = None

    def __init__(self, parts: Sequence[Samples], weights: Sequence[float]) -> None:
        self.parts = tuple(parts)
        self.blend = Blend(weights)

    def sample(self, global_index: int) -> Sample:
        """Sample ``global_index`` of the run; see ``order.global_sample_index``."""
        part, index = self.blend.locate(global_index)
        return self.parts[part].sample(index)


AnySamples = Samples | BlendedSamples


def open_samples(prepared: PreparedData, split: SplitName, *, seq_len: int, seed: int, document_mask: bool) -> AnySamples:
    """Opens a split of ``prepared`` for reading; ``seed`` orders training and has no bearing on validation.

    Raises:
        UserError: the prepared files are missing on this machine, or are no longer what was prepared.
    """
    data = prepared.train if split == "train" else prepared.valid
    assert data is not None, f"nothing was held back for the {split} split"

    def open_part(part: SplitData, number: int) -> Samples:
        windows = open_examples(part, seq_len) if part.examples else _open_windows(part, seq_len, document_mask)
        # In the order of the files, a short evaluation would see one document only.
        return Samples(windows, SampleOrder(len(windows), seed if split == "train" else VALIDATION_SEED, number))

    if data.parts:
        return BlendedSamples([open_part(part, number) for number, part in enumerate(data.parts)], data.weights)
    if data.prefix is None:
        mock = MockWindows(prepared.vocab_size, seq_len, split=split, seed=seed, document_mask=document_mask)
        return Samples(mock, None)
    return open_part(data, 0)


def _open_windows(data: SplitData, seq_len: int, document_mask: bool) -> Windows:
    assert data.prefix is not None
    assert data.first_document is not None
    assert data.end_document is not None
    pair = open_pair(data.prefix)
    if data.end_document <= pair.num_documents:
        windows = Windows(pair, data.first_document, data.end_document, seq_len, document_mask=document_mask)
        if windows.num_tokens == data.num_tokens:
            return windows
    message = f"is no longer what was prepared: {data.num_tokens} tokens in documents {data.first_document} to {data.end_document - 1}."
    raise UserError(Problem(f"{data.prefix}.idx", message, ("start the run again: it prepares the data anew",)))
