"""Llama 2 and 3 as TorchTitan's llama3 model."""

from dataclasses import dataclass

from torchtitan.models import llama3
from torchtitan.models.common import ComplexRoPE

from primus_app.backends.torchtitan.attention import CpuAttentionMasks
from primus_app.backends.torchtitan.model.family import ATTENTION, Family, ends_of
from primus_app.backends.torchtitan.model.rope import rope_fields
from primus_app.config.schema import ModelConfig


class CpuLlamaModel(CpuAttentionMasks, llama3.Llama3Model):
    """Llama3Model with the CPU's masks."""

    @dataclass(kw_only=True, slots=True)
    class Config(llama3.Llama3Model.Config):
        pass


def llama_config(model: ModelConfig, seq_len: int) -> llama3.Llama3Model.Config:
    """The configuration of Llama3Model; head_dim is hidden_size / num_attention_heads there."""
    layers = llama3._build_llama3_layers(
        n_layers=model.num_hidden_layers,
        dim=model.hidden_size,
        n_heads=model.num_attention_heads,
        n_kv_heads=model.num_key_value_heads,
        hidden_dim=model.intermediate_size,
        rope=ComplexRoPE.Config(**rope_fields(model, model.head_dim, seq_len)),
        attn_backend=ATTENTION,
    )
    for layer in layers:
        layer.attention.head_dim = model.head_dim  # The same that None stands for; said, it holds for shards.OneColumn too.
    ends = ends_of(
        model,
        embedding_init=llama3._EMBEDDING_INIT,
        output_init=llama3._output_linear_init(model.hidden_size),
        norm_init=llama3._NORM_INIT,
    )
    return llama3.Llama3Model.Config(layers=layers, **ends)


FAMILY = Family("llama3", llama_config, CpuLlamaModel, llama3.parallelize_llama, llama3.Llama3StateDictAdapter)
