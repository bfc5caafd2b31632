"""The loss that keeps experts evenly loaded: its value for each sequence, and how its gradient enters beside the cross entropy's.

For one sequence of T tokens in one layer it is sum_i f_i P_i over the E experts, with f_i = E / (K T) times the number of tokens
that have expert i among the K with the highest scores, and P_i the mean of expert i's share of a token's scores (DeepSeek-V3, arXiv
2412.19437, equations 17 to 20). A sequence is a whole sample, padding, masked tokens and documents that share it included. The
objective is the cross entropy plus training.aux_loss_coefficient times the mean of this over the sequences of the global batch, summed
over layers: neither micro batches nor ranks are in that.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from primus_app.config.schema import Config


def shares(scores: torch.Tensor) -> torch.Tensor:
    """Each expert's share of a token's scores [..., E], which are not negative; a softmax has them already."""
    return scores / (scores.sum(dim=-1, keepdim=True) + 1e-20)


def choices(scores: torch.Tensor, top_k: int) -> torch.Tensor:
    """How many tokens of each sequence have an expert among their ``top_k`` highest scores: [B, L, E] to [B, E]; no gradient.

    Of the scores alone, without selection bias and groups, as in the paper's equation 18.
    """
    best = scores.detach().topk(top_k, dim=-1).indices
    return torch.zeros_like(scores, requires_grad=False).scatter_(-1, best, 1.0).sum(dim=1)


def balance_loss(scores: torch.Tensor, chosen: torch.Tensor, top_k: int, seq_len: int) -> torch.Tensor:
    """Sum over sequences of what the tokens of ``scores`` [B, L, E] contribute to their losses; 1 each where all is even.

    ``chosen`` [B, E] counts over whole sequences of ``seq_len`` tokens. Where ranks divide a sequence, the sum over them is its loss.
    """
    frequencies = chosen * (scores.shape[-1] / (top_k * seq_len))
    return (frequencies * shares(scores).sum(dim=1) / seq_len).sum()


def mean_balance_loss(tallies: Sequence[torch.Tensor], config: Config, device: torch.device) -> float:
    """The loss of a step without its coefficient, from what all routers have added up: a mean over sequences and layers.

    1 where all is even. All ranks ask together.
    """
    moe, model = config.model.moe, config.model
    assert moe is not None
    total = torch.zeros((), device=device)
    for tally in tallies:
        total += tally.to(device)
    if dist.is_initialized():
        dist.all_reduce(total)
    return total.item() / (config.training.global_batch_size * (model.num_hidden_layers - moe.first_k_dense_replace))


class _WithLoss(torch.autograd.Function):
    """Counts in the backward pass, which comes once where activations are computed again."""

    @staticmethod
    def forward(ctx: Any, carrier: torch.Tensor, loss: torch.Tensor, weight: float, tally: torch.Tensor, share: float) -> torch.Tensor:
        ctx.loss, ctx.weight, ctx.tally, ctx.share = loss.detach(), weight, tally, share
        return carrier.view_as(carrier)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.tally.add_(ctx.loss * ctx.share)
        return gradients[0], torch.full_like(ctx.loss, ctx.weight), None, None, None


def with_loss(carrier: torch.Tensor, loss: torch.Tensor, weight: float, tally: torch.Tensor, share: float = 1.0) -> torch.Tensor:
    """``carrier`` as it is; its backward pass is one of ``weight`` times ``loss`` too, and adds ``share`` of the loss to ``tally``."""
    found: torch.Tensor = _WithLoss.apply(carrier, loss, weight, tally, share)
    return found
