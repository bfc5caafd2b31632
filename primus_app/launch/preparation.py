"""How far the preparation of data has come, in lines for a log: one at its start, and one for each tenth of a large corpus."""

import sys
from collections.abc import Iterator

from primus_app.data.prepared import PreparedData

LARGE = 100_000_000
"""Bytes or tokens from which a reader of the log wants to know more than that it has begun."""


class PreparationLines:
    """Writes to standard error; a second pass over the data counts its tenths anew."""

    def __init__(self) -> None:
        self._tenths: int | None = None

    def tell(self, done: int, total: int) -> None:
        """Say that ``done`` of ``total`` are done, if that is news."""
        tenths = 10 * done // total if total >= LARGE else 0
        if tenths != self._tenths:
            self._tenths = tenths
            place = f": {done:,} of {total:,} ({10 * tenths} %)" if tenths else ""
            print(f"preparing data{place}", file=sys.stderr, flush=True)


def told_about_examples(data: PreparedData) -> Iterator[str]:
    """What became of the examples of data=instructions, a line for each split; those that are cut or left out are never passed over."""
    for name, split in (("train", data.train), ("valid", data.valid)):
        if split is None or split.examples is None:
            continue
        found = split.examples
        number = (split.end_document or 0) - found.dropped
        lost = [f"{count:,} too long and {word}" for count, word in ((found.cut, "cut"), (found.dropped, "left out")) if count]
        yield f"data            {name}: {number:,} examples in {found.num_windows:,} samples{''.join(f', {text}' for text in lost)}"
