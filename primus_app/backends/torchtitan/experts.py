"""Routed experts and routers that compute in float32 where TorchTitan's would compute in bfloat16."""

import warnings
from dataclasses import dataclass

import spmd_types as spmd
import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torchtitan.distributed.spmd_types import spmd_mesh_size
from torchtitan.distributed.utils import get_spmd_backend
from torchtitan.models.common.linear import Linear
from torchtitan.models.common.moe import GroupedExperts


class Float32GroupedExperts(GroupedExperts):
    """GroupedExperts of torchtitan 0.3.0 with float32 in the place of its bfloat16; the same weights, names and sharding."""

    @dataclass(kw_only=True, slots=True)
    class Config(GroupedExperts.Config):
        pass

    def forward(self, x_RD: torch.Tensor, num_tokens_per_expert_E: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """SwiGLU of each expert: x is [routed tokens, hidden_size] sorted by expert, the counts are [experts]; returns x's shape."""
        offsets = torch.cumsum(num_tokens_per_expert_E, dim=0, dtype=torch.int32)
        _vary_over_data_ranks(offsets)
        w1, w2, w3 = (_local(weight).float().transpose(-2, -1) for weight in (self.w1_EFD, self.w2_EDF, self.w3_EFD))
        x = x_RD.float()
        hidden = functional.silu(self._grouped_mm(A=x, B_t=w1, offs=offsets)) * self._grouped_mm(A=x, B_t=w3, offs=offsets)
        return self._grouped_mm(A=hidden, B_t=w2, offs=offsets).type_as(x_RD)


class Float32Gate(Linear):
    """A router's projection in float32: TorchTitan asks autocast for that, which the CPU's refuses with a warning."""

    @dataclass(kw_only=True, slots=True)
    class Config(Linear.Config):
        pass

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Scores in float32, [..., experts], of hidden states of any precision, [..., hidden_size]."""
        bias = None if self.bias is None else self.bias.float()
        return functional.linear(input.float(), self.weight.float(), bias)


def silence_cpu_autocast() -> None:
    """Keep the CPU's autocast from warning that it has no float32, where Float32Gate gives it."""
    warnings.filterwarnings("ignore", message="In CPU autocast, but the target dtype is not supported")


def _local(weight: torch.Tensor) -> torch.Tensor:
    return weight.to_local() if isinstance(weight, DTensor) else weight


def _vary_over_data_ranks(offsets: torch.Tensor) -> None:
    # As GroupedExperts.forward does: without expert parallelism spmd_types would take the counts for partial sums.
    if get_spmd_backend() == "spmd_types" and spmd.is_type_checking() and spmd_mesh_size("ep") == 1:
        for axis in ("dp", "cp"):
            spmd.mutate_type(offsets, axis, src=spmd.P, dst=spmd.V)
