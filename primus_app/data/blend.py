"""Which of several corpora the i-th sample of a run comes from: in proportion to their weights at every moment, and known for any i."""

import math
from collections.abc import Sequence
from fractions import Fraction

HALF = Fraction(1, 2)


class Blend:
    """Shares of samples by ``weights``, all above 0; only their proportions count, as the decimal fractions they are typed as.

    The first corpus takes the samples at which its share of all, rounded, grows: floor((i+1)·share + 1/2) > floor(i·share + 1/2). What
    it leaves is numbered anew and divided among the others in the same way. So sample i needs no history, and each corpus has after any
    number of samples what its weight says, to less than the number of corpora.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        exact = [Fraction(str(weight)) for weight in weights]
        assert exact
        assert min(exact) > 0
        self._shares = [weight / sum(exact[part:]) for part, weight in enumerate(exact)]

    def locate(self, index: int) -> tuple[int, int]:
        """(corpus, number among the samples of that corpus) of sample ``index`` of the run; both count from 0."""
        for part, share in enumerate(self._shares):
            before = math.floor(index * share + HALF)
            if math.floor((index + 1) * share + HALF) > before:
                return part, before
            index -= before
        raise AssertionError("the last corpus takes all that is left")
