"""Text to token ids and back."""

import numpy as np
from numpy.typing import NDArray

from primus_app.plan.data_rules import VOCAB_SIZES


class ByteTokenizer:
    """Each byte of UTF-8 is its own id, 0 to 255; id 256 ends a document."""

    name = "byte"
    vocab_size = VOCAB_SIZES["byte"]
    end_of_document = vocab_size - 1

    def encode(self, text: str | bytes) -> NDArray[np.uint16]:
        """Token ids of ``text``, shape [bytes], without an end of document."""
        raw = text.encode() if isinstance(text, str) else text
        return np.frombuffer(raw, dtype=np.uint8).astype(np.uint16)

    def decode(self, ids: NDArray[np.integer]) -> str:
        """Text of ``ids``, ends of documents left out; bytes that are no UTF-8, as at a cut, become U+FFFD.

        Raises:
            ValueError: an id is not of this tokenizer.
        """
        ids = np.asarray(ids)
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocab_size):
            raise ValueError(f"token ids lie between {ids.min()} and {ids.max()}, but this tokenizer has 0 to {self.vocab_size - 1}")
        return ids[ids != self.end_of_document].astype(np.uint8).tobytes().decode(errors="replace")


TOKENIZERS = {"byte": ByteTokenizer}


def build_tokenizer(name: str) -> ByteTokenizer:
    """The tokenizer that the configuration calls ``name``."""
    return TOKENIZERS[name]()
