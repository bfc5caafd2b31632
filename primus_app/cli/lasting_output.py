"""Standard output of a program that has more to do than print: a reader that leaves, or a full disk, ends no training."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class LastingOutput:
    """A text stream that goes on as /dev/null once it cannot be written to; standard error is told why, once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        with suppress(OSError):
            print(f"note: nothing more is printed ({error.strerror}); the run goes on", file=sys.stderr)


@contextmanager
def lasting_output() -> Iterator[None]:
    """``sys.stdout`` is lasting inside."""
    before = sys.stdout
    sys.stdout = LastingOutput(before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = before
