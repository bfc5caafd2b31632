"""Megatron's router, whose balance loss counts every sequence of the global batch alike."""

from typing import Any

import torch
from megatron.core.transformer.moe.router import TopKRouter

from primus_app.backends.balance_loss import with_loss


class BalancedRouter(TopKRouter):
    """TopKRouter with the gradient of its seq_aux_loss in right proportion to the cross entropy's.

    Before 0.19 upstream multiplies it by the tokens of a sequence on this rank, which leaves out how many sequences a micro batch has
    and how many ranks divide a sequence; and no version counts masked tokens. ``sequence_weight`` is for one sequence: tokens that
    count in the global batch / its sequences, since all gradients are divided by the former in the end.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sequence_weight = 0.0
        self.tally = torch.zeros(())
        self._sequences = 0

    def routing(self, logits: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        """As the parent's; ``logits`` are [tokens of this rank's part, sequences, experts]."""
        self._sequences = logits.shape[1]
        return super().routing(logits, *arguments, **named)

    def attach_and_log_load_balancing_loss(
        self, activation: torch.Tensor, aux_loss_coeff: float, aux_loss: torch.Tensor, *unused: Any, **logged: Any
    ) -> torch.Tensor:
        """``aux_loss`` is this rank's part of the mean over its sequences, times the coefficient."""
        weight = self._sequences * self.sequence_weight
        return with_loss(activation, aux_loss, weight, self.tally, self._sequences / aux_loss_coeff)


def balanced_routers(chunks: list[Any]) -> list[BalancedRouter]:
    """Those of this rank's layers; none where nothing is balanced by a loss."""
    return [module for chunk in chunks for module in chunk.modules() if isinstance(module, BalancedRouter)]
