"""Broken pairs are named with file and offset before training."""

import os
import struct
from pathlib import Path

import pytest

from primus_app.config.errors import UserError
from primus_app.data.indexed import open_pair
from primus_app.data.scan import check_ids, remembered_scan, scan_pair
from primus_app.plan.data_files import prefix_of

DOCUMENTS = [[1, 2, 3], [4, 5, 6, 7]]
HEADER = 34


def problem(prefix: str) -> str:
    with pytest.raises(UserError) as caught:
        scan_pair(open_pair(prefix))
    return str(caught.value)


def patch(path: str, offset: int, raw: bytes) -> None:
    with open(path, "r+b") as stream:
        stream.seek(offset)
        stream.write(raw)


def test_reads_what_was_written(write_pair) -> None:
    pair = open_pair(write_pair(DOCUMENTS, "uint16"))
    assert pair.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert pair.lengths.tolist() == [3, 4]
    assert pair.pointers.tolist() == [0, 6]
    assert [pair.document_start(document) for document in range(3)] == [0, 3, 7]
    assert pair.document_starts_between(1, 7).tolist() == [3]
    assert pair.document_starts_between(4, 7).tolist() == []


@pytest.mark.parametrize("ending", ["", ".bin", ".idx"])
def test_path_with_or_without_ending(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert prefix_of(f"folder/corpus.v1{ending}") == str(tmp_path / "folder/corpus.v1")


@pytest.mark.parametrize("missing", ["bin", "idx"])
def test_one_file_is_missing(write_pair, missing: str) -> None:
    prefix = write_pair(DOCUMENTS)
    os.unlink(f"{prefix}.{missing}")
    assert f"{prefix}.{missing}: does not exist." in problem(prefix)
    assert "alone is no corpus" in problem(prefix)


def test_the_nearest_pair_is_offered(write_pair, tmp_path: Path) -> None:
    write_pair(DOCUMENTS, name="wiki_text_document")
    assert f"data.path={tmp_path}/wiki_text_document" in problem(str(tmp_path / "wiki_txt_document"))
    assert f"data.path={tmp_path}/wiki_text_document" in problem(str(tmp_path))
    assert f"the folder {tmp_path}/no does not exist" in problem(str(tmp_path / "no/wiki"))


@pytest.mark.parametrize(
    ("offset", "raw", "message"),
    [
        (0, b"PK\x03\x04", "at byte 0"),
        (9, b"\x02", "version 2 at byte 9"),
        (17, b"\x07", "number format 7 at byte 17"),
        (18, struct.pack("<QQ", 0, 1), "is empty"),
        (18, struct.pack("<Q", 3), "3 sequences and 2 documents take 94 bytes"),
        (HEADER + 8 + 16, struct.pack("<q", 1), "documents over sequences 1 to 2"),
        (HEADER + 8 + 24, struct.pack("<q", 5), "document 1 ends before it begins"),
        (HEADER, struct.pack("<i", 2), "sequence 1 is said to have 4 tokens from byte 12"),
        (HEADER + 8, struct.pack("<q", 4), "sequence 0 is said to have 3 tokens from byte 4"),
    ],
)
def test_broken_index(write_pair, offset: int, raw: bytes, message: str) -> None:
    prefix = write_pair(DOCUMENTS)
    patch(f"{prefix}.idx", offset, raw)
    assert problem(prefix).startswith(f"{prefix}.idx: ")
    assert message in problem(prefix)


@pytest.mark.parametrize(("size", "message"), [(0, "begin with Megatron's magic"), (20, "ends at byte 20"), (60, "ends at byte 60")])
def test_truncated_index(write_pair, size: int, message: str) -> None:
    prefix = write_pair(DOCUMENTS)
    os.truncate(f"{prefix}.idx", size)
    assert message in problem(prefix)


def test_truncated_tokens(write_pair) -> None:
    prefix = write_pair(DOCUMENTS)
    os.truncate(f"{prefix}.bin", 21)
    expected = f"{prefix}.bin: ends at byte 21, but corpus.idx says it has 28 bytes: token 5 is the first one missing."
    assert expected in problem(prefix)


def test_tokens_of_another_index(write_pair) -> None:
    prefix = write_pair(DOCUMENTS)
    with open(f"{prefix}.bin", "ab") as stream:
        stream.write(b"more")
    assert "what follows byte 28 is unknown" in problem(prefix)


def test_documents_without_tokens(write_pair) -> None:
    assert "it holds no token" in problem(write_pair([[], []]))


def test_scan_finds_extremes_and_their_places(write_pair) -> None:
    scan = scan_pair(open_pair(write_pair([[5, 2, 9], [2, 9, 3]])))
    assert (scan.num_documents, scan.num_tokens) == (2, 6)
    assert (scan.least_id, scan.least_at, scan.largest_id, scan.largest_at) == (2, 1, 9, 2)


def test_scan_is_the_same_in_any_chunks(write_pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = open_pair(write_pair([[5, 2, 9], [2, 9, 3], [7], [], [1, 9]], sequences=2))
    whole = scan_pair(pair)
    for chunk in (1, 2, 3):
        monkeypatch.setattr("primus_app.data.scan.CHUNK", chunk)
        told: list[tuple[int, int]] = []
        assert scan_pair(pair, lambda done, total, told=told: told.append((done, total))) == whole  # type: ignore[misc]
        assert told[-1] == (9, 9)


def test_digest_is_of_content_not_of_its_form(write_pair) -> None:
    def digest(documents: list[list[int]], dtype: str = "int32", name: str = "a", sequences: int = 1) -> str:
        return scan_pair(open_pair(write_pair(documents, dtype, name, sequences))).content_digest

    same = {digest(DOCUMENTS), digest(DOCUMENTS, "uint16"), digest(DOCUMENTS, "int64", "b"), digest(DOCUMENTS, sequences=2)}
    assert len(same) == 1
    others = {digest([[1, 2, 3, 4], [5, 6, 7]]), digest([[1, 2, 3], [4, 5, 6, 8]]), digest([[1, 2, 3], [4, 5, 6, 7], []])}
    assert len(others | same) == 4


def test_ids_beyond_the_vocabulary(write_pair) -> None:
    prefix = write_pair([[5, 2, 9], [2, 9, 3]], "uint16")
    scan = scan_pair(open_pair(prefix))
    check_ids(scan, prefix, 2, vocab_size=10)
    with pytest.raises(UserError) as caught:
        check_ids(scan, prefix, 2, vocab_size=9)
    assert f"{prefix}.bin: has token id 9 at byte 4 (token 2), but model.vocab_size=9 has ids 0 to 8." in str(caught.value)
    assert "model.vocab_size=10" in str(caught.value)


def test_negative_ids(write_pair) -> None:
    prefix = write_pair([[5, -3]])
    with pytest.raises(UserError, match=r"token id -3 at byte 4"):
        check_ids(scan_pair(open_pair(prefix)), prefix, 4, vocab_size=10)


def test_a_scan_is_remembered_until_the_files_change(write_pair, tmp_path: Path) -> None:
    cache, told = tmp_path / "cache", []

    def scan() -> int:
        return remembered_scan(open_pair(prefix), cache, lambda done, total: told.append(done)).largest_id

    prefix = write_pair(DOCUMENTS)
    assert [scan(), scan(), len(told)] == [7, 7, 1]
    patch(f"{prefix}.bin", 24, struct.pack("<i", 70))
    os.utime(f"{prefix}.bin", ns=(1, 1))
    assert [scan(), len(told)] == [70, 2]
    for memory in cache.iterdir():
        memory.write_text("{")
    assert [scan(), len(told)] == [70, 3]


def test_a_scan_that_cannot_be_remembered_is_still_good(write_pair, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    assert remembered_scan(open_pair(write_pair(DOCUMENTS)), tmp_path / "file").largest_id == 7
    assert "cannot be written" in caplog.text
