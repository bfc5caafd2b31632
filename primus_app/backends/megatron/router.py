"""Megatron's router, whose balance loss counts every sequence of the global batch alike."""

from typing import Any

import torch
from megatron.core.transformer.moe.router import TopKRouter

from primus_app.backends.balance_loss import Tally, with_loss


class BalancedRouter(TopKRouter):
    """TopKRouter of megatron-core 0.16 with the gradient of its seq_aux_loss in right proportion to the cross entropy's.

    Upstream multiplies it by the tokens of a sequence on this rank, which leaves out how many sequences a micro batch has, how many
    ranks divide a sequence, and which tokens are masked. ``sequence_weight`` is for one sequence: tokens that count in the global
    batch / its sequences, since all gradients are divided by the former in the end.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sequence_weight = 0.0
        self.tally = Tally()

    def attach_and_log_load_balancing_loss(
        self,
        activation: torch.Tensor,
        aux_loss_coeff: float,
        aux_loss: torch.Tensor,
        aux_loss_name: str,
        reduce_group: Any,
        reduce_group_has_dp: bool = False,
        valid_token_count: int | torch.Tensor | None = None,
    ) -> torch.Tensor:
        """``aux_loss``: the mean over sequences of the coefficient times this rank's part; ``valid_token_count``: its part's length."""
        sequences = activation.shape[0] / valid_token_count
        return with_loss(activation, aux_loss, float(sequences * self.sequence_weight), self.tally, sequences / aux_loss_coeff)


def balanced_routers(chunks: list[Any]) -> list[BalancedRouter]:
    """Those of this rank's layers; none where nothing is balanced by a loss."""
    return [module for chunk in chunks for module in chunk.modules() if isinstance(module, BalancedRouter)]
