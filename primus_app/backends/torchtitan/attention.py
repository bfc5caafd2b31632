"""Attention on the CPU, where FlexAttention has no backward pass: the same result by scaled_dot_product_attention."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask
from torchtitan.models.common.attention import FlexAttention, get_causal_mask_mod

DENSE = "_primus_dense"
"""Attribute of a BlockMask: None where it is plainly causal, else its dense mask, bool [batch, 1, queries, keys]."""


class CpuFlexAttention(FlexAttention):
    """FlexAttention's contract (a BlockMask in, the same result out) by scaled_dot_product_attention."""

    @dataclass(kw_only=True, slots=True)
    class Config(FlexAttention.Config):
        pass

    def forward(
        self,
        q_BLNH: torch.Tensor,  # noqa: N803 - TorchTitan's names, by which its sharding finds the arguments
        k_BLNH: torch.Tensor,  # noqa: N803
        v_BLNH: torch.Tensor,  # noqa: N803
        *,
        attention_masks: BlockMask,
        score_mod: object = None,
        scale: float | None = None,
        enable_gqa: bool = False,
        out_transform: object = None,
        **kwargs: object,
    ) -> torch.Tensor:
        """Attend from q, k, v of [batch, length, heads, head_dim]; returns [batch, length, query heads, value head_dim].

        Raises NotImplementedError for score_mod and out_transform, which none of our model families uses.
        """
        if score_mod is not None or out_transform is not None:
            raise NotImplementedError("attention on the CPU knows neither score_mod nor out_transform")
        query, key, value = (tensor.transpose(1, 2) for tensor in (q_BLNH, k_BLNH, v_BLNH))
        mask = dense_mask(attention_masks, query.shape[2], key.shape[2], query.device)
        out = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=enable_gqa
        )
        return out.transpose(1, 2)


class CpuAttentionMasks:
    """Mixin of a TorchTitan decoder: the plain causal mask is made once per shape, not once per micro batch."""

    def get_attention_masks(self, positions: torch.Tensor) -> object:
        """The mask of [batch, length] positions that begin again at 0 where a document begins."""
        if bool((positions == torch.arange(positions.shape[1], device=positions.device)).all()):
            return causal_block_mask(positions.shape[0], positions.shape[1], positions.device)
        return super().get_attention_masks(positions)  # type: ignore[misc]


@lru_cache(maxsize=8)
def causal_block_mask(batch: int, length: int, device: torch.device) -> BlockMask:
    """The BlockMask of plain causal attention, known as such to CpuFlexAttention."""
    mask = create_block_mask(get_causal_mask_mod(), batch, None, length, length, device=device)
    setattr(mask, DENSE, None)
    return mask


def dense_mask(mask: BlockMask, num_queries: int, num_keys: int, device: torch.device) -> torch.Tensor | None:
    """The dense form of ``mask``, worked out once for each BlockMask; None where it is plainly causal."""
    if not hasattr(mask, DENSE):
        setattr(mask, DENSE, _densify(mask.mask_mod, mask.shape[0], num_queries, num_keys, device))
    dense: torch.Tensor | None = getattr(mask, DENSE)
    if dense is not None and dense.shape[-2:] != (num_queries, num_keys):
        raise RuntimeError(f"one mask met two shapes: it is {tuple(dense.shape)}, attention wants {num_queries} by {num_keys}")
    return dense


def _densify(
    mask_mod: Callable[..., torch.Tensor], batch: int, num_queries: int, num_keys: int, device: torch.device
) -> torch.Tensor | None:
    dense = create_mask(mask_mod, batch, 1, num_queries, num_keys, device=device)
    causal = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril()
    return None if num_queries == num_keys and torch.equal(dense, causal.expand_as(dense)) else dense
