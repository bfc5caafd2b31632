"""Which files are found, in which order, and when their content counts as the same."""

import os
from pathlib import Path

import pytest

from primus_app.config.errors import UserError
from primus_app.data.text.files import content_digest, list_files, refuse_changes


def names(*paths: Path) -> list[str]:
    return [file.name for file in list_files([str(path) for path in paths])]


def problems(*paths: Path) -> list[str]:
    with pytest.raises(UserError) as caught:
        names(*paths)
    assert all(problem.fix for problem in caught.value.problems)
    return [f"{problem.where}: {problem.what}" for problem in caught.value.problems]


@pytest.fixture
def tree(corpus: Path) -> Path:
    for name in ("b/2.txt", "b/10.md", "a.jsonl", "b.txt", ".hidden/x.txt", "b/.DS_Store"):
        (corpus / name).parent.mkdir(exist_ok=True)
        (corpus / name).write_text(name)
    return corpus


def test_sorted_relative_names_without_dotted_ones(tree: Path) -> None:
    assert names(tree) == ["a.jsonl", "b.txt", "b/10.md", "b/2.txt"]
    assert names(tree / "b", tree / "a.jsonl") == ["10.md", "2.txt", "a.jsonl"]
    assert names(tree / ".hidden") == names(tree / ".hidden/x.txt") == ["x.txt"]


def test_links_are_followed_each_folder_once(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far/far.txt").write_text("far")
    (tree / "c").symlink_to(tmp_path / "far")
    (tree / "b/loop").symlink_to(tree)
    assert names(tree) == ["a.jsonl", "b.txt", "b/10.md", "b/2.txt", "c/far.txt"]


def test_nothing_found(corpus: Path) -> None:
    assert problems(corpus) == [f"{corpus}: no file is in this folder or below it."]


def test_all_that_is_wrong_at_once(tree: Path) -> None:
    (tree / "empty.txt").touch()
    (tree / "gone.txt").symlink_to(tree / "nowhere")
    os.mkfifo(tree / "pipe")
    assert problems(tree) == [
        f"{tree}/empty.txt: is empty: it ends at byte 0.",
        f"{tree}/gone.txt: cannot be read: No such file or directory.",
        f"{tree}/pipe: is no regular file.",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_without_permission(tree: Path) -> None:
    (tree / "a.jsonl").chmod(0)
    (tree / "b").chmod(0)
    assert problems(tree) == [f"{tree}/{name}: cannot be read: Permission denied." for name in ("b", "a.jsonl")]


def test_at_most_ten_are_named(corpus: Path) -> None:
    for number in range(20):
        (corpus / f"{number}.txt").touch()
    assert len(problems(corpus)) == 10


def test_a_file_reached_twice(tree: Path) -> None:
    assert problems(tree, tree / "b") == [f"data.path: {tree}/b/10.md is reached by two of the paths."]


def test_the_digest_is_of_content_and_kind_not_of_place_or_name(tree: Path, tmp_path: Path) -> None:
    def digest(path: Path, cache: str = "cache") -> str:
        return content_digest(list_files([str(path)]), tmp_path / cache)

    first = digest(tree)
    os.rename(tree, tmp_path / "moved")
    os.rename(tmp_path / "moved/a.jsonl", tmp_path / "moved/aa.jsonl")
    assert digest(tmp_path / "moved") == first
    os.rename(tmp_path / "moved/aa.jsonl", tmp_path / "moved/aa.txt")
    assert digest(tmp_path / "moved") != first
    (tmp_path / "moved/b.txt").write_text("B.txt")
    assert len({first, digest(tmp_path / "moved"), digest(tmp_path / "moved", "other")}) == 2


def test_an_unchanged_corpus_is_not_read_again(tree: Path, tmp_path: Path) -> None:
    read: list[int] = []

    def digest() -> str:
        read.clear()
        return content_digest(list_files([str(tree)]), tmp_path / "cache", lambda done, total: read.append(done))

    first = digest()
    assert read == [7, 12, 19, 26]  # lengths of the names, which are the contents
    assert (digest(), read) == (first, [])
    os.utime(tree / "b.txt", ns=(1, 1))
    assert (digest(), read) == (first, [7, 12, 19, 26])


def test_a_change_while_it_is_read(tree: Path) -> None:
    files = list_files([str(tree)])
    refuse_changes(files)
    (tree / "b.txt").write_text("longer than before")
    with pytest.raises(UserError, match=r"b.txt: changed while it was read: it had 5 bytes, now 18"):
        refuse_changes(files)
