"""The time of a pass split by what it is spent on, and sums of it."""

from dataclasses import dataclass

from primus_app.plan.workload import Number


@dataclass(frozen=True)
class Pass:
    """Seconds of a forward or backward pass on one rank; communication is the part that computing does not hide.

    Attributes:
        products: matrix products of the layers.
        attention: of queries with keys and values.
        memory: operations bound by memory.
        tp, cp, ep: exposed communication.
    """

    products: Number = 0.0
    attention: Number = 0.0
    memory: Number = 0.0
    tp: Number = 0.0
    cp: Number = 0.0
    ep: Number = 0.0

    @property
    def compute(self) -> Number:
        """Without communication."""
        return self.products + self.attention + self.memory

    @property
    def total(self) -> Number:
        """All of it."""
        return self.compute + self.tp + self.cp + self.ep

    def __add__(self, other: "Pass") -> "Pass":
        return Pass(
            self.products + other.products,
            self.attention + other.attention,
            self.memory + other.memory,
            self.tp + other.tp,
            self.cp + other.cp,
            self.ep + other.ep,
        )

    def times(self, factor: Number) -> "Pass":
        """Each part ``factor`` times."""
        parts = (self.products, self.attention, self.memory, self.tp, self.cp, self.ep)
        return Pass(*(factor * part for part in parts))
