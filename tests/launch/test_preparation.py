"""What a log without a terminal says of the preparation of data."""

import pytest

from primus_app.launch.preparation import PreparationLines


def lines(capsys: pytest.CaptureFixture[str], calls: list[tuple[int, int]]) -> list[str]:
    told = PreparationLines()
    for done, total in calls:
        told.tell(done, total)
    return capsys.readouterr().err.splitlines()


def test_a_small_corpus_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, []) == []
    assert lines(capsys, [(done, 99) for done in range(100)]) == ["preparing data"]


def test_a_large_one_a_line_for_each_tenth_of_each_pass(capsys: pytest.CaptureFixture[str]) -> None:
    passes = [(done * 10**7, 10**9) for done in range(1, 101)] * 2
    found = lines(capsys, passes)
    assert len(found) == 22
    assert found[:2] == ["preparing data", "preparing data: 100,000,000 of 1,000,000,000 (10 %)"]
    assert found[10:12] == ["preparing data: 1,000,000,000 of 1,000,000,000 (100 %)", "preparing data"]
