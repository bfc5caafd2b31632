"""The bias of attention's output projection under tensor parallelism, with its whole gradient."""

from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torchtitan.models.common.linear import ScaledBiasRowwiseLinear
from torchtitan.models.gpt_oss.moe import ScaleBiasForward


class WholeBiasGradient(ScaledBiasRowwiseLinear):
    """ScaledBiasRowwiseLinear of torchtitan 0.3.0, whose ranks of tp each take their part of the gradient for the whole of it."""

    @dataclass(kw_only=True, slots=True)
    class Config(ScaledBiasRowwiseLinear.Config):
        pass

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """This rank's part of the product and of the bias, which the ranks of tp sum."""
        weight, bias = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in (self.weight, self.bias))
        return functional.linear(input, weight, ScaleBiasForward.apply(bias, self.tp_degree, bias.dtype))
