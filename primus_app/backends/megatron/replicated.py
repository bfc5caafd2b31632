"""A projection that every tensor-parallel rank has whole, for the latents of attention, where Transformer Engine has its own.

Megatron's local layers would divide it over tp and gather the result; the gathering's backward pass keeps a rank's own part of the gradient
of the keys' positions, which every rank's heads have contributed to, and so trains wrong.
"""

from collections.abc import Callable
from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn


class ReplicatedLinear(nn.Module):
    """[s, b, in] to [s, b, out], without bias; under sequence parallelism each rank has its part of s, and gradients are summed over tp."""

    def __init__(
        self, input_size: int, output_size: int, *, config: TransformerConfig, init_method: Callable[[torch.Tensor], Any], **unused: Any
    ) -> None:
        super().__init__()
        device = torch.cuda.current_device()
        self.weight = nn.Parameter(torch.empty(output_size, input_size, dtype=config.params_dtype, device=device))
        init_method(self.weight)
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The projection and, as Megatron's layers answer, the bias that it has not."""
        return nn.functional.linear(hidden, self.weight), None
