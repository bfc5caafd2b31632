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
    end_token: str

    def encode_batch(self, texts: Sequence[str]) -> list[Any]: ...
    def ids(self, encoded: Any) -> NDArray[np.integer]: ...
    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]: ...


class ByteTokenizer:
    """Each byte of UTF-8 is its own id, 0 to 255; id 256 ends a document."""

    name = identity = BYTE
    vocab_size = VOCAB_SIZES[BYTE]
    end_of_document = vocab_size - 1
    end_token = "<|end|>"
    """How a chat template writes the end of document."""

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

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each text its ids [tokens] and, [tokens, 2], the first character of each and the one behind.

        ``end_token`` in a text is one token here, the end of document.
        """
        return [self._with_offsets(text) for text in texts]

    def _with_offsets(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids: list[NDArray[np.int64]] = []
        firsts: list[NDArray[np.int64]] = []
        lasts: list[NDArray[np.int64]] = []
        begin = 0
        for number, part in enumerate(text.split(self.end_token)):
            if number:
                ids.append(np.array([self.end_of_document]))
                firsts.append(np.array([begin]))
                begin += len(self.end_token)
                lasts.append(np.array([begin]))
            characters = np.repeat(np.arange(begin, begin + len(part)), _bytes_of_characters(part))
            ids.append(self.encode(part).astype(np.int64))
            firsts.append(characters)
            lasts.append(characters + 1)
            begin += len(part)
        return np.concatenate(ids), np.stack([np.concatenate(firsts), np.concatenate(lasts)], axis=1)

    def decode(self, ids: NDArray[np.integer]) -> str:
        """Text of ``ids``, ends of documents left out; bytes that are no UTF-8, as at a cut, become U+FFFD.

        Raises:
            ValueError: an id is not of this tokenizer.
        """
        ids = np.asarray(ids)
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocab_size):
            raise ValueError(f"token ids lie between {ids.min()} and {ids.max()}, but this tokenizer has 0 to {self.vocab_size - 1}")
        return ids[ids != self.end_of_document].astype(np.uint8).tobytes().decode(errors="replace")


def _bytes_of_characters(text: str) -> NDArray[np.int64]:
    """How many bytes of UTF-8 each character takes."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    return (1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF)).astype(np.int64)


def open_tokenizer(name: str, end_of_document: str | None = None) -> Tokenizer:
    """The tokenizer that the configuration calls ``name``.

    Raises:
        UserError: its file is missing or broken, or its end of document is not known.
    """
    return ByteTokenizer() if name == BYTE else HuggingFaceTokenizer(name, end_of_document)
