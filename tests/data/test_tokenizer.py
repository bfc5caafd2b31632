"""Bytes as tokens."""

import numpy as np
import pytest

from primus_app.data.tokenizer import ByteTokenizer


def test_ids_are_the_bytes_of_utf8() -> None:
    assert ByteTokenizer().encode("aé€").tolist() == [0x61, 0xC3, 0xA9, 0xE2, 0x82, 0xAC]  # Unicode 15, table 3-6


def test_decoding_undoes_encoding_and_leaves_ends_of_documents_out() -> None:
    tokenizer = ByteTokenizer()
    ids = np.concatenate([tokenizer.encode("π = 3\n"), [256], tokenizer.encode(b"x"), [256]])
    assert tokenizer.decode(ids) == "π = 3\nx"
    assert tokenizer.decode(np.array([], dtype=np.int64)) == ""


def test_a_cut_character_is_replaced() -> None:
    assert ByteTokenizer().decode(np.array([0x61, 0xC3])) == "a\ufffd"


@pytest.mark.parametrize("wrong", [-1, 257])
def test_ids_of_another_tokenizer_are_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match="0 to 256"):
        ByteTokenizer().decode(np.array([1, wrong]))
