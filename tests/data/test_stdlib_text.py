"""Which source files make the default corpus."""

from pathlib import Path

import pytest

from primus_app.config.errors import UserError
from primus_app.data.stdlib_text import documents, in_corpus_order


def test_tests_installed_packages_and_undecodable_files_are_left_out(tmp_path: Path) -> None:
    files = {"b.py": b"b", "a/z.py": b"z\r\n", "a.txt": b"text", "latin.py": b"\xe9", "empty.py": b"", "_sysconfigdata__x.py": b"paths"}
    files |= {f"{folder}/c.py": b"c" for folder in ("test", "a/tests", "site-packages", "dist-packages", "a/__pycache__", "idlelib")}
    for name, raw in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(raw)
    assert documents(tmp_path) == [("a/z.py", "z\r\n"), ("b.py", "b")]


def test_the_running_library() -> None:
    found = documents()
    names = [document.name for document in found]
    assert names == sorted(names)
    assert {"json/decoder.py", "asyncio/events.py", "this.py"} <= set(names)
    assert sum(len(document.text) for document in found) > 5_000_000  # CPython 3.11 has 11 MB
    assert sorted(in_corpus_order(found)) == found
    assert in_corpus_order(found) != found


def test_adding_a_file_moves_no_other() -> None:
    found = documents()[:50]
    without = [document for document in in_corpus_order(found) if document != found[7]]
    assert in_corpus_order(found[:7] + found[8:]) == without


def test_no_sources(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no Python source files"):
        documents(tmp_path)
