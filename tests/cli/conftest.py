"""The door called in this process, with what it prints."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from primus_app.__main__ import main


@dataclass(frozen=True)
class Answer:
    """One command line's end."""

    code: int
    out: str
    err: str

    def problems(self) -> list[list[str]]:
        """Each problem as its lines, the head without ``error: ``."""
        return [part.rstrip("\n").split("\n") for part in ("\n" + self.err).split("\nerror: ")[1:]]


@pytest.fixture
def door(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Answer]:
    """``door("plan", "model=…")`` as typed in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def ask(*argv: str) -> Answer:
        capsys.readouterr()
        code = main(argv)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return ask
