"""TorchTitan's router with a loss that keeps experts evenly loaded, which it has none of."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from torchtitan.models.common.moe import TokenChoiceTopKRouter

from primus_app.backends.balance_loss import balance_loss, choices, with_loss


class BalancedRouter(TokenChoiceTopKRouter):
    """TokenChoiceTopKRouter of torchtitan 0.3.0; the trainer sets ``context_group`` where ranks divide a sequence.

    ``sequence_weight`` is what one sequence's loss counts in the gradient: the coefficient / sequences of the global batch.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(TokenChoiceTopKRouter.Config):
        seq_len: int
        sequence_weight: float

    tally: torch.Tensor

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.seq_len, self.sequence_weight = config.seq_len, config.sequence_weight
        self.context_group: Any = None
        # A buffer, so that what a pipeline's shape pass adds is taken back.
        self.register_buffer("tally", torch.zeros((), dtype=torch.float32), persistent=False)

    def _init_self_buffers(self, *, buffer_device: torch.device | None = None) -> None:
        self.tally = torch.zeros((), dtype=torch.float32, device=buffer_device or self.tally.device)

    def forward(
        self,
        x_BLD: torch.Tensor,  # noqa: N803
        expert_bias_E: torch.Tensor | None = None,  # noqa: N803
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As the parent's."""
        weights, experts, scores = super().forward(x_BLD, expert_bias_E)
        if self.training and torch.is_grad_enabled():
            weights = self._with_loss(weights, scores)
        return weights, experts, scores

    def _with_loss(self, weights: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        local = scores.to_local() if isinstance(scores, DTensor) else scores
        chosen = choices(local, self.top_k)
        groups, copies = _groups(scores)
        for group in [*groups, *([self.context_group] if self.context_group is not None else [])]:
            dist.all_reduce(chosen, group=group)
        loss = balance_loss(local, chosen, self.top_k, self.seq_len)
        return with_loss(weights, loss, self.sequence_weight, self.tally, 1 / copies)


def _groups(scores: torch.Tensor) -> tuple[list[Any], int]:
    """The tensor parallel ranks that divide the sequences of ``scores`` [B, L, E], and how many have the same part of them."""
    if not isinstance(scores, DTensor):
        return [], 1
    mesh, groups, copies = scores.device_mesh, [], 1
    for dim, placement in enumerate(scores.placements):
        if isinstance(placement, Shard) and placement.dim == 1:
            groups.append(mesh.get_group(dim))
        elif placement.is_replicate():
            copies *= mesh.size(dim)
    return groups, copies


def balanced_routers(parts: list[nn.Module]) -> list[BalancedRouter]:
    """Those of this rank's layers; none where nothing is balanced by a loss."""
    return [module for part in parts for module in part.modules() if isinstance(module, BalancedRouter)]
