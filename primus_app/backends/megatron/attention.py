"""The attention core that goes in where Transformer Engine's is not there or cannot do what is asked: torch's scaled_dot_product_attention.

Megatron's own local core allocates a buffer on cuda, refuses context parallelism, and latent attention's two head sizes.
"""

from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.utils import is_layer_window_attention
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class CoreAttention(nn.Module):
    """Causal attention, within a window or within documents where asked for; every context rank gathers all keys and values."""

    def __init__(
        self,
        config: TransformerConfig,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        k_channels: int | None = None,
        v_channels: int | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
        **unused: Any,
    ) -> None:
        super().__init__()
        self._group = pg_collection.cp if pg_collection is not None else parallel_state.get_context_parallel_group()
        self._scale = softmax_scale
        slides = is_layer_window_attention(config.window_size, config.window_attn_skip_freq, layer_number)
        self._window = config.window_size[0] if slides and config.window_size is not None else None

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        attn_mask_type: Any = None,
        attention_bias: torch.Tensor | None = None,
        packed_seq_params: Any = None,
        **unused: Any,
    ) -> torch.Tensor:
        """``query`` [s, b, heads, d], ``key`` and ``value`` [s, b, groups, d] give [s, b, heads * d].

        ``attention_mask`` is None, or [b, whole s]: for each token the place of the first token of its document.
        """
        ranks = self._group.size()
        if ranks > 1:
            key, value = (GatherSequence.apply(tensor, self._group) for tensor in (key, value))
        local, batch = query.shape[:2]
        mask = self._mask(local, self._group.rank(), ranks, attention_mask, query.device)
        return self.attend(query, key, value, mask).reshape(local, batch, -1)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """[s, b, heads, d] of this rank's queries over the whole sequence's keys; without ``mask``, plainly causal."""
        heads = query.shape[2]
        if mask is not None and key.shape[2] != heads:
            # With a mask and groups torch has no kernel that leaves out the scores.
            key, value = (tensor.repeat_interleave(heads // tensor.shape[2], dim=2) for tensor in (key, value))
        found = scaled_dot_product_attention(
            query.permute(1, 2, 0, 3),
            key.permute(1, 2, 0, 3),
            value.permute(1, 2, 0, 3),
            attn_mask=mask,
            is_causal=mask is None,
            scale=self._scale,
            enable_gqa=key.shape[2] != heads,
        )
        return found.permute(2, 0, 1, 3)

    def _mask(self, local: int, rank: int, ranks: int, starts: torch.Tensor | None, device: torch.device) -> torch.Tensor | None:
        """What each token attends to, [b or 1, 1, s, whole s]; None for plain causal attention."""
        if ranks == 1 and starts is None and self._window is None:
            return None
        queries = sequence_places(local * ranks, rank, ranks).to(device)[:, None]
        keys = torch.arange(local * ranks, device=device)[None, :]
        mask = (keys <= queries)[None, None]
        if self._window is not None:
            mask = mask & (keys >= queries - self._window)
        if starts is not None:
            mask = mask & (keys >= starts[:, None, queries[:, 0], None])
        return mask


def sequence_places(seq_len: int, rank: int, ranks: int) -> torch.Tensor:
    """Which tokens of a sequence a context rank has: one part from either end, so that all have as much to attend to."""
    if ranks == 1:
        return torch.arange(seq_len)
    part = seq_len // (2 * ranks)
    mirrored = 2 * ranks - 1 - rank
    return torch.cat([torch.arange(rank * part, (rank + 1) * part), torch.arange(mirrored * part, (mirrored + 1) * part)])


class GatherSequence(torch.autograd.Function):
    """[s of a rank, ...] of every context rank to [whole s, ...] in the order of the sequence."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group, ranks = group, group.size()
        gathered = [torch.empty_like(tensor) for _ in range(ranks)]
        dist.all_gather(gathered, tensor.contiguous(), group=group)
        whole = torch.empty((tensor.shape[0] * ranks, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
        for rank, part in enumerate(gathered):
            whole[sequence_places(whole.shape[0], rank, ranks).to(tensor.device)] = part
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient[sequence_places(gradient.shape[0], ctx.group.rank(), ctx.group.size()).to(gradient.device)], None
