"""What a log without a terminal says of the preparation of data."""

import pytest

from primus_app.data.prepared import Examples, PreparedData, SplitData
from primus_app.launch.preparation import PreparationLines, told_about_examples


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


def test_examples_that_are_cut_or_left_out_are_told() -> None:
    def split(number: int, windows: int, **lost: int) -> SplitData:
        return SplitData("a", 0, number, 100, examples=Examples(True, "truncate", 0, windows, **lost))

    data = PreparedData("instructions", split(1010, 90, cut=3, dropped=10), split(5, 2), "", None, 257, 1015)
    assert list(told_about_examples(data)) == [
        "data            train: 1,000 examples in 90 samples, 3 too long and cut, 10 too long and left out",
        "data            valid: 5 examples in 2 samples",
    ]
    text = PreparedData("text", SplitData("a", 0, 5, 100), None, "", None, 257, 5)
    assert list(told_about_examples(text)) == []
