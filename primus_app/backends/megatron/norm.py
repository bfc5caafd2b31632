"""RMS norm whose weight sequence parallelism may split the input of; Megatron's wrapper of torch's refuses that."""

from typing import Any

from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn


class SequenceParallelNorm:
    """Builds torch's RMSNorm; its weight is marked, so that Megatron sums the gradients of the sequence's parts over tp."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **unused: Any) -> nn.RMSNorm:
        norm = nn.RMSNorm(hidden_size, eps=eps)
        for weight in norm.parameters():
            weight.sequence_parallel = config.sequence_parallel
        return norm
