"""A growing pair against Megatron's format as the tests write it, and cut back to what is known."""

from pathlib import Path

import numpy as np
import pytest

from primus_app.data.indexed import open_pair
from primus_app.data.text import growing
from primus_app.data.text.growing import GrowingPair, divide, finish, remove

DOCUMENTS = [np.array(ids) for ids in ([1, 2, 3], [4], [5, 6], [7, 8, 9, 10])]


def written(prefix: Path, dtype: type[np.integer] = np.uint16) -> GrowingPair:
    pair = GrowingPair(prefix, dtype)
    pair.add(DOCUMENTS[:1])
    pair.add([])
    pair.add(DOCUMENTS[1:])
    pair.close()
    return pair


@pytest.mark.parametrize(("dtype", "name"), [(np.uint16, "uint16"), (np.int32, "int32")])
@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_the_same_bytes_as_another_writer(
    tmp_path: Path, write_pair, dtype: type[np.integer], name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "CHUNK", chunk)
    pair = written(tmp_path / "own", dtype)
    finish(pair.prefix, dtype)
    other = write_pair([document.tolist() for document in DOCUMENTS], dtype=name)
    for ending in ("bin", "idx"):
        assert Path(f"{pair.prefix}.{ending}").read_bytes() == Path(f"{other}.{ending}").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("own*")) == ["own.bin", "own.idx"]


def test_what_was_written_after_a_known_state_is_cut_off(tmp_path: Path) -> None:
    written(tmp_path / "own")
    pair = GrowingPair(tmp_path / "own", np.uint16, num_documents=2, num_tokens=4)
    pair.add([np.array([11, 12])])
    pair.sync()
    pair.close()
    finish(tmp_path / "own", np.uint16)
    opened = open_pair(str(tmp_path / "own"))
    assert opened.tokens.tolist() == [1, 2, 3, 4, 11, 12]
    assert opened.lengths.tolist() == [3, 1, 2]


def test_less_than_the_known_state(tmp_path: Path) -> None:
    written(tmp_path / "own")
    with pytest.raises(FileNotFoundError, match=r"own.bin has less than 22 bytes"):
        GrowingPair(tmp_path / "own", np.uint16, num_documents=4, num_tokens=11)
    with pytest.raises(FileNotFoundError):
        GrowingPair(tmp_path / "none", np.uint16, num_documents=1, num_tokens=1)


@pytest.mark.parametrize("num_tokens", range(1, 10))
def test_a_division_keeps_the_order(tmp_path: Path, num_tokens: int) -> None:
    written(tmp_path / "own")
    divide(tmp_path / "own", tmp_path / "other", num_tokens, np.uint16)
    for name in ("own", "other"):
        finish(tmp_path / name, np.uint16)
    first, last = open_pair(str(tmp_path / "own")), open_pair(str(tmp_path / "other"))
    assert last.num_tokens == num_tokens
    assert [*first.tokens.tolist(), *last.tokens.tolist()] == list(range(1, 11))
    ends = {*np.cumsum(first.lengths).tolist(), *(first.num_tokens + np.cumsum(last.lengths)).tolist()}
    assert ends == {3, 4, 6, 10, first.num_tokens}


def test_a_pair_that_is_not_needed(tmp_path: Path) -> None:
    remove(written(tmp_path / "own").prefix)
    assert list(tmp_path.iterdir()) == []
