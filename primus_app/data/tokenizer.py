"""Text to token ids and back."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from primus_app.data.huggingface_tokenizer import HuggingFaceTokenizer
from primus_app.plan.data_files import BYTE
from primus_app.plan.data_rules import VOCAB_SIZES


class Tokenizer(Protocol):
    """What preparation asks of a tokenizer; see ``HuggingFaceTokenizer`` for the words."""

    name: str
    identity: str
    vocab_size: int
    end_of_document: int

    def encode_batch(self, texts: Sequence[str]) -> list[Any]: ...
    def ids(self, encoded: Any) -> NDArray[np.integer]: ...


class ByteTokenizer:
    """Each byte of UTF-8 is its own id, 0 to 255; id 256 ends a document."""

    name = identity = BYTE
    vocab_size = VOCAB_SIZES[BYTE]
    end_of_document = vocab_size - 1

    def encode(self, text: str | bytes) -> NDArray[np.uint16]:
        """Token ids of ``text``, shape [bytes], without an end of document."""
        raw = text.encode() if isinstance(text, str) else text
        return np.frombuffer(raw, dtype=np.uint8).astype(np.uint16)

    def encode_batch(self, texts: Sequence[str]) -> list[Any]:
        """``encode`` of each text."""
        return [self.encode(text) for text in texts]

    def ids(self, encoded: Any) -> NDArray[np.integer]:
        """One result of ``encode_batch`` is its ids."""
        ids: NDArray[np.integer] = encoded
        return ids

    def decode(self, ids: NDArray[np.integer]) -> str:
        """Text of ``ids``, ends of documents left out; bytes that are no UTF-8, as at a cut, become U+FFFD.

        Raises:
            ValueError: an id is not of this tokenizer.
        """
        ids = np.asarray(ids)
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocab_size):
            raise ValueError(f"token ids lie between {ids.min()} and {ids.max()}, but this tokenizer has 0 to {self.vocab_size - 1}")
        return ids[ids != self.end_of_document].astype(np.uint8).tobytes().decode(errors="replace")


def open_tokenizer(name: str, end_of_document: str | None = None) -> Tokenizer:
    """The tokenizer that the configuration calls ``name``.

    Raises:
        UserError: its file is missing or broken, or its end of document is not known.
    """
    return ByteTokenizer() if name == BYTE else HuggingFaceTokenizer(name, end_of_document)
