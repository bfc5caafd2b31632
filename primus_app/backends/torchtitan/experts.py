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
from torchtitan.models.gpt_oss.moe import GptOssGroupedExperts, ScaleBiasForward, swiglu


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


class Float32GptOssExperts(GptOssGroupedExperts):
    """gpt_oss's GroupedExperts in float32: biases, and its own SwiGLU; the same weights, names and sharding."""

    @dataclass(kw_only=True, slots=True)
    class Config(GptOssGroupedExperts.Config):
        pass

    def forward(self, x_RD: torch.Tensor, num_tokens_per_expert_E: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """As Float32GroupedExperts; rows after those that the counts tell of get no bias."""
        offsets = torch.cumsum(num_tokens_per_expert_E, dim=0, dtype=torch.int32)
        _vary_over_data_ranks(offsets)
        expert = torch.searchsorted(offsets, torch.arange(x_RD.shape[0], device=x_RD.device, dtype=torch.int32), right=True)
        w1, w2 = (_local(weight).float().transpose(-2, -1) for weight in (self.mlp1_weight_EGD, self.mlp2_weight_EDF))
        b1, b2 = (functional.pad(_local(bias).float(), (0, 0, 0, 1))[expert] for bias in (self.mlp1_bias_EG, self.mlp2_bias_ED))
        hidden = swiglu(self._grouped_mm(A=x_RD.float(), B_t=w1, offs=offsets) + b1, limit=self.swiglu_limit)
        # Ranks of tp add their parts of the product, and so a part of the bias each.
        found = self._grouped_mm(A=hidden, B_t=w2, offs=offsets) + ScaleBiasForward.apply(b2, _tensor_ranks(self.mlp1_weight_EGD), b2.dtype)
        return found.type_as(x_RD)


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


def _tensor_ranks(weight: torch.Tensor) -> int:
    names = weight.device_mesh.mesh_dim_names if isinstance(weight, DTensor) else None
    return weight.device_mesh.size(names.index("tp")) if names and "tp" in names and isinstance(weight, DTensor) else 1


def _local(weight: torch.Tensor) -> torch.Tensor:
    return weight.to_local() if isinstance(weight, DTensor) else weight


def _vary_over_data_ranks(offsets: torch.Tensor) -> None:
    # As GroupedExperts.forward does: without expert parallelism spmd_types would take the counts for partial sums.
    if get_spmd_backend() == "spmd_types" and spmd.is_type_checking() and spmd_mesh_size("ep") == 1:
        for axis in ("dp", "cp"):
            spmd.mutate_type(offsets, axis, src=spmd.P, dst=spmd.V)
