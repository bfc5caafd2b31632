"""The second projection of experts with biases, where Megatron's own layers are used: its gradients as they should be."""

from typing import Any

from megatron.core.tensor_parallel import RowParallelLinear
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes


class ExpertDown(RowParallelLinear):
    """RowParallelLinear of an expert that no rank shares (Megatron has biases in experts with expert tensor parallelism of 1 alone)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Where upstream sums over the one rank, its result is a view, to which the expert may not add the bias in place.
        self.explicit_expert_comm = True
        if self.bias is not None:
            # Upstream takes it for the same on all ranks of tp: it would sum the gradients of different experts, and leave some out of
            # the norm. As matrices of experts are, it is marked as this rank's own.
            self.bias.sequence_parallel = False
            set_tensor_model_parallel_attributes(self.bias, is_parallel=True, dim=0, stride=1)
