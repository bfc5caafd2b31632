"""gpt-oss as TorchTitan's gpt_oss model: sinks, windows on every other layer, biases, and experts in stacks."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torchtitan.config import derive
from torchtitan.models import gpt_oss
from torchtitan.models.common import CosSinRoPE
from torchtitan.models.common.attention import get_sliding_window_mask_mod

from primus_app.backends.torchtitan.attention import causal_block_mask, is_one_document
from primus_app.backends.torchtitan.model.family import ATTENTION, Family, ends_of, set_routing
from primus_app.backends.torchtitan.model.gpt_oss_adapter import GptOssAdapter
from primus_app.backends.torchtitan.model.rope import rope_fields
from primus_app.backends.torchtitan.output_bias import WholeBiasGradient
from primus_app.config.schema import ModelConfig
from primus_app.plan.parameters import slides


class CpuGptOssModel(gpt_oss.GptOssModel):
    """GptOssModel whose plain masks are made once per shape, as CpuAttentionMasks has it for one mask."""

    @dataclass(kw_only=True, slots=True)
    class Config(gpt_oss.GptOssModel.Config):
        pass

    def get_attention_masks(self, positions: torch.Tensor) -> object:
        """The masks by the names that layers choose them by."""
        windows = {layer.attention.sliding_window_size for layer in self.config.layers} - {None}
        if not is_one_document(positions) or len(windows) != 1:
            return super().get_attention_masks(positions)
        batch, length = positions.shape
        plain = causal_block_mask(batch, length, positions.device)
        return {"basic_mask": plain, "sliding_window_mask": _window_block_mask(batch, length, windows.pop(), positions.device)}


@lru_cache(maxsize=8)
def _window_block_mask(batch: int, length: int, window: int, device: torch.device) -> BlockMask:
    return create_block_mask(get_sliding_window_mask_mod(window), batch, None, length, length, device=device)


def gpt_oss_config(model: ModelConfig, seq_len: int) -> gpt_oss.GptOssModel.Config:
    """The configuration of GptOssModel; upstream's builder of layers knows the published heads and windows alone."""
    assert model.moe is not None
    assert model.swiglu_limit is not None
    rope = CosSinRoPE.Config(**rope_fields(model, model.head_dim, seq_len))
    layers = gpt_oss._build_gptoss_layers(
        dim=model.hidden_size,
        n_layers=model.num_hidden_layers,
        hidden_dim=model.moe.moe_intermediate_size,
        num_experts=model.moe.num_experts,
        top_k=model.moe.num_experts_per_tok,
        load_balance_coeff=0.0,
        attn_backend=ATTENTION,
        moe_comm_backend="standard",
        rope=rope,
    )
    for index, layer in enumerate(layers):
        layer.attention = gpt_oss._make_gptoss_attn_config(
            dim=model.hidden_size,
            layer_id=index,
            attn_backend=ATTENTION,
            n_heads=model.num_attention_heads,
            n_kv_heads=model.num_key_value_heads,
            head_dim=model.head_dim,
            sliding_window_size=model.sliding_window if slides(model, index) else None,
            rope=rope,
        )
        layer.attention.wo = derive(layer.attention.wo, WholeBiasGradient.Config)
        layer.moe.routed_experts.inner_experts.swiglu_limit = model.swiglu_limit
        set_routing(layer.moe.router, model.moe)
    ends = ends_of(
        model,
        embedding_init=gpt_oss._EMBEDDING_INIT,
        output_init=gpt_oss._output_linear_init(model.hidden_size),
        norm_init=gpt_oss._NORM_INIT,
    )
    return gpt_oss.GptOssModel.Config(layers=layers, **ends)


FAMILY = Family("gpt_oss", gpt_oss_config, CpuGptOssModel, gpt_oss.parallelize_gptoss, GptOssAdapter)
