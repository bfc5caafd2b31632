"""The attention core with a learnt sink for each head: one more logit in the softmax, of a key that has no value.

Megatron's own local core knows sinks too, but allocates a buffer on cuda, refuses context parallelism and keeps all scores.
"""

from typing import Any

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint
from torch import nn
from torch.nn.functional import pad, scaled_dot_product_attention

from primus_app.backends.megatron.attention import CoreAttention

ALIGNMENT = 8
"""Multiple of a head's width that torch's kernels ask for."""


class SinkAttention(CoreAttention):
    """CoreAttention with sinks, [heads of this rank] by Megatron's name for them."""

    def __init__(self, config: TransformerConfig, layer_number: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, layer_number, *args, **kwargs)
        self._tp_group = kwargs["pg_collection"].tp
        heads, device = config.num_attention_heads // self._tp_group.size(), torch.cuda.current_device()
        self.softmax_offset = nn.Parameter(torch.empty(heads, dtype=config.params_dtype, device=device))
        with get_cuda_rng_tracker().fork():
            config.init_method(self.softmax_offset)
        set_tensor_model_parallel_attributes(self.softmax_offset, is_parallel=True, dim=0, stride=1)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """The sink is a last key that meets each query in one dimension of its own, so that any kernel of torch's gives it gradients."""
        length, heads, width = query.shape[0], query.shape[2], query.shape[3]
        scale = width**-0.5 if self._scale is None else self._scale
        if mask is None:
            mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()[None, None]
        if key.shape[2] != heads:
            key, value = (tensor.repeat_interleave(heads // tensor.shape[2], dim=2) for tensor in (key, value))
        sinks = pad((self.softmax_offset / scale).to(key.dtype)[:, None], (width, 0)).expand(1, key.shape[1], -1, -1)
        key = torch.cat([pad(key, (0, 1)), sinks])
        query = pad(query, (0, 1), value=1.0)
        extra = -query.shape[3] % ALIGNMENT
        found = scaled_dot_product_attention(
            pad(query, (0, extra)).permute(1, 2, 0, 3),
            pad(key, (0, extra)).permute(1, 2, 0, 3),
            pad(value, (0, 0, 0, 0, 0, 0, 0, 1)).permute(1, 2, 0, 3),
            attn_mask=pad(mask, (0, 1), value=True),
            scale=scale,
        )
        return found.permute(2, 0, 1, 3)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: dict[str, Any] | None = None) -> Any:
        """The sinks of a distributed checkpoint, divided among the heads' ranks."""
        groups = {"tp_group": self._tp_group, "dp_cp_group": (metadata or {})["dp_cp_group"]}
        state = self.state_dict(prefix="", keep_vars=True)
        return make_sharded_tensors_for_checkpoint(state, prefix, {"softmax_offset": 0}, sharded_offsets, **groups)
