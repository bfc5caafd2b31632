"""How far the preparation of data has come, in lines for a log: one at its start, and one for each tenth of a large corpus."""

import sys

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
