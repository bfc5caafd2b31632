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
        out_transform: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        """Attend from q, k, v of [batch, length, heads, head_dim]; returns [batch, length, query heads, value head_dim].

        ``out_transform`` is given that and the logarithm of the sums of the exponentials, [batch, length, query heads].
        Raises NotImplementedError for score_mod, which none of our model families uses.
        """
        if score_mod is not None:
            raise NotImplementedError("attention on the CPU does not know score_mod")
        query, key, value = (tensor.transpose(1, 2) for tensor in (q_BLNH, k_BLNH, v_BLNH))
        mask = dense_mask(attention_masks, query.shape[2], key.shape[2], query.device)
        if out_transform is not None:
            found, sums = _with_sums(query, key, value, mask, query.shape[-1] ** -0.5 if scale is None else scale)
            return out_transform(found.transpose(1, 2), sums.transpose(1, 2))
        out = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=enable_gqa
        )
        return out.transpose(1, 2)


class CpuAttentionMasks:
    """Mixin of a TorchTitan decoder: the plain causal mask is made once per shape, not once per micro batch."""

    def get_attention_masks(self, positions: torch.Tensor) -> object:
        """The mask of [batch, length] positions that begin again at 0 where a document begins."""
        if is_one_document(positions):
            return causal_block_mask(positions.shape[0], positions.shape[1], positions.device)
        return super().get_attention_masks(positions)  # type: ignore[misc]


def is_one_document(positions: torch.Tensor) -> bool:
    """Whether no document begins within the [batch, length] sequences."""
    return bool((positions == torch.arange(positions.shape[1], device=positions.device)).all())


def _with_sums(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of [batch, heads, length, head_dim] and the logarithm of its softmax's denominator, which no kernel of the CPU's gives."""
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
    scores = (query.float() @ key.float().transpose(-1, -2)) * scale
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    sums = scores.logsumexp(dim=-1)
    return ((scores - sums[..., None]).exp() @ value.float()).to(query.dtype), sums


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
