"""What a layer keeps for its backward pass, in bytes for each token, by how the tensors are divided among ranks."""

from dataclasses import dataclass

from primus_app.plan.memory.arithmetic import choose
from primus_app.plan.workload import Layout, Number, Workload

BYTES = {"fp32": 4, "bf16": 2, "fp8": 2}
"""Bytes of an element outside matrix products; fp8 is a format of their operands only."""


@dataclass(frozen=True)
class Widths:
    """Bytes a token.

    Attributes:
        whole: the same on every tp rank.
        split: divided over tp along the sequence under sequence parallelism, otherwise whole.
        gathered: whole, but only where tp gathers what is divided along the sequence; otherwise not kept.
        parallel: divided over tp along heads or width.
        context: divided over tp too, and kept only under context parallelism.
        routed: of each copy of a token that is sent to an expert, the width of the residual stream.
        routed_parallel: the same, divided over etp.
        exchanged: of each copy too, only where experts are on different ranks (ep > 1).
        position: of each position of the sequence, whatever the micro batch.
    """

    whole: int = 0
    split: int = 0
    gathered: int = 0
    parallel: int = 0
    context: int = 0
    routed: int = 0
    routed_parallel: int = 0
    exchanged: int = 0
    position: int = 0

    def __add__(self, other: "Widths") -> "Widths":
        return Widths(
            self.whole + other.whole,
            self.split + other.split,
            self.gathered + other.gathered,
            self.parallel + other.parallel,
            self.context + other.context,
            self.routed + other.routed,
            self.routed_parallel + other.routed_parallel,
            self.exchanged + other.exchanged,
            self.position + other.position,
        )

    def bytes(self, workload: Workload, layout: Layout) -> Number:
        """Bytes of one micro batch on one rank.

        Routing is balanced: a rank's experts get ``tokens·k/tp`` copies, and those of all ranks that share an expert by etp.
        """
        here = tokens(workload, layout)
        divided = choose(layout.sequence_parallel, layout.tp, 1)
        whole = self.whole + self.gathered * (divided > 1)
        found = here * whole + here * self.split // divided + here * (self.parallel + self.context * (layout.cp > 1)) // layout.tp
        if self.routed or self.routed_parallel:
            copies = here * (workload.model.moe.num_experts_per_tok if workload.model.moe else 0)
            each = self.routed * layout.etp + self.routed_parallel + self.exchanged * (layout.ep > 1)
            found = found + copies * each // layout.tp
        return found + self.position * (workload.seq_len // layout.cp)


def tokens(workload: Workload, layout: Layout) -> Number:
    """Tokens of a micro batch on a rank before tensor parallelism."""
    return layout.micro_batch_size * workload.seq_len // layout.cp


def element(workload: Workload) -> int:
    """Bytes of an element of an activation."""
    return BYTES[workload.compute]


def operand(workload: Workload) -> int:
    """Bytes of an element of a matrix product's operand that is kept for its backward pass."""
    return 1 if workload.compute == "fp8" else element(workload)
