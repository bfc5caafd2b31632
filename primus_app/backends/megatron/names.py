"""Megatron-core's tensors in terms of Hugging Face's: which rows of which weights each is made of, whole or a rank's part.

Megatron fuses query, key and value by groups of query heads, and gate and up projection one above the other. Imports no torch.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from primus_app.backends.expert_stacks import engine_weights
from primus_app.backends.hf_names import HfParameter, hf_buffers
from primus_app.config.schema import ModelConfig

_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"mlp\.experts\.(?:local_experts\.(\d+)\.(linear_fc[12])\.(weight|bias)|(linear_fc[12])\.(weight|bias)(\d+))")
"""One expert's matrix or bias, in a module of its own or in a grouped one."""

OUTSIDE = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
}
OUTPUT = "output_layer.weight"
INPUT_NORM, MLP_NORM = "input_layernorm.weight", "post_attention_layernorm.weight"
NORMS = {
    "input_layernorm.weight": INPUT_NORM,
    "self_attention.linear_qkv.layer_norm_weight": INPUT_NORM,
    "pre_mlp_layernorm.weight": MLP_NORM,
    "mlp.linear_fc1.layer_norm_weight": MLP_NORM,
}
"""Transformer Engine keeps a norm in the projection that comes after it."""
ATTENTION = {
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "self_attention.linear_proj.bias": "self_attn.o_proj.bias",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    "self_attention.core_attention.softmax_offset": "self_attn.sinks",
}
LATENT_ATTENTION = {
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "self_attention.linear_q_proj.weight": "self_attn.q_proj.weight",
    "self_attention.linear_q_down_proj.weight": "self_attn.q_a_proj.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_a_layernorm.weight",
    "self_attention.linear_q_up_proj.layer_norm_weight": "self_attn.q_a_layernorm.weight",
    "self_attention.linear_q_up_proj.weight": "self_attn.q_b_proj.weight",
    "self_attention.linear_kv_down_proj.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "self_attention.kv_layernorm.weight": "self_attn.kv_a_layernorm.weight",
    "self_attention.linear_kv_up_proj.layer_norm_weight": "self_attn.kv_a_layernorm.weight",
    "self_attention.linear_kv_up_proj.weight": "self_attn.kv_b_proj.weight",
}
DOWN = {"mlp.linear_fc2.weight": "mlp.down_proj.weight", "mlp.shared_experts.linear_fc2.weight": "mlp.shared_experts.down_proj.weight"}
GATED = {"mlp.linear_fc1.weight": "mlp.", "mlp.shared_experts.linear_fc1.weight": "mlp.shared_experts."}


@dataclass(frozen=True)
class Block:
    """Rows ``first`` to ``stop`` of one of Hugging Face's tensors."""

    weight: HfParameter
    first: int
    stop: int

    @property
    def num_rows(self) -> int:
        return self.stop - self.first


@dataclass(frozen=True)
class Origin:
    """What one whole tensor of Megatron is made of: ``parts``, one above the other, each of blocks one above the other.

    Tensor parallelism that divides rows divides each part, so that a rank holds as much gate as up projection.
    """

    parts: tuple[tuple[Block, ...], ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for part in self.parts for block in part)

    @property
    def num_rows(self) -> int:
        return sum(block.num_rows for block in self.blocks)

    def share(self, rank: int, ranks: int) -> tuple[Block, ...]:
        """The rows of one of ``ranks`` that divide them."""
        return tuple(block for part in self.parts for block in _cut(part, rank, ranks))


class Origins:
    """The origins of every tensor of ``model``, by Megatron's names with layers and experts counted through the whole model."""

    def __init__(self, model: ModelConfig) -> None:
        self._model = model
        self._weights = {weight.name: weight for weight in (*engine_weights(model), *hf_buffers(model))}

    def of(self, name: str) -> Origin:
        """Raises KeyError for a tensor that this architecture does not have in Hugging Face's checkpoint."""
        if name == OUTPUT:
            tied = self._model.tie_word_embeddings
            return self._whole("model.embed_tokens.weight" if tied else "lm_head.weight")
        if name in OUTSIDE:
            return self._whole(OUTSIDE[name])
        match = _LAYER.fullmatch(name)
        if match is None:
            raise KeyError(name)
        return self._in_layer(f"model.layers.{match[1]}.", match[2])

    def names(self) -> Iterator[str]:
        """Every tensor of a model without Transformer Engine, as Megatron's distributed checkpoints call them."""
        model = self._model
        yield "embedding.word_embeddings.weight"
        for layer in range(model.num_hidden_layers):
            yield from (f"decoder.layers.{layer}.{name}" for name in self._names_in_layer(layer))
        yield "decoder.final_layernorm.weight"
        if not model.tie_word_embeddings:
            yield OUTPUT

    def _names_in_layer(self, layer: int) -> Iterator[str]:
        prefix, moe = f"model.layers.{layer}.", self._model.moe
        yield INPUT_NORM
        if self._model.mla is None:
            yield "self_attention.linear_qkv.weight"
            if f"{prefix}self_attn.q_proj.bias" in self._weights:
                yield "self_attention.linear_qkv.bias"
        names = ATTENTION if self._model.mla is None else LATENT_ATTENTION
        for name, there in names.items():
            if prefix + there in self._weights and not name.endswith("layer_norm_weight"):
                yield name
        yield "pre_mlp_layernorm.weight"
        if moe is None or layer < moe.first_k_dense_replace:
            yield from ("mlp.linear_fc1.weight", "mlp.linear_fc2.weight")
            return
        yield "mlp.router.weight"
        kinds = ("weight", "bias") if moe.expert_bias_terms else ("weight",)
        if moe.expert_bias_terms:
            yield "mlp.router.bias"
        if moe.expert_bias:
            yield "mlp.router.expert_bias"
        for expert in range(moe.num_experts):
            yield from (f"mlp.experts.local_experts.{expert}.linear_fc{number}.{kind}" for number in (1, 2) for kind in kinds)
        if moe.num_shared_experts:
            yield from (f"mlp.shared_experts.linear_fc{number}.weight" for number in (1, 2))

    def _in_layer(self, prefix: str, name: str) -> Origin:
        if name in NORMS:
            return self._whole(prefix + NORMS[name])
        names = ATTENTION if self._model.mla is None else LATENT_ATTENTION
        if name in names:
            return self._whole(prefix + names[name])
        if name in DOWN:
            return self._whole(prefix + DOWN[name])
        if name in GATED:
            return self._gated(prefix + GATED[name], "gate_proj", "up_proj")
        if name.startswith("self_attention.linear_qkv."):
            return self._qkv(prefix + "self_attn.", name.removeprefix("self_attention.linear_qkv."))
        mixtral = self._model.family == "mixtral"
        block = prefix + ("block_sparse_moe." if mixtral else "mlp.")
        if name in ("mlp.router.weight", "mlp.router.bias"):
            router = "router" if self._model.family == "gpt_oss" else "gate"
            return self._whole(f"{block}{router}.{name.rpartition('.')[2]}")
        if name == "mlp.router.expert_bias":
            return self._whole(block + "gate.e_score_correction_bias")
        if match := _EXPERT.fullmatch(name):
            expert, kind = f"{block}experts.{match[1] or match[6]}.", match[3] or match[5]
            gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
            is_down = (match[2] or match[4]) == "linear_fc2"
            return self._whole(f"{expert}{down}.{kind}") if is_down else self._gated(expert, gate, up, kind)
        raise KeyError(prefix + name)

    def _whole(self, name: str) -> Origin:
        weight = self._weights[name]
        return Origin(((Block(weight, 0, weight.shape[0]),),))

    def _gated(self, prefix: str, gate: str, up: str, kind: str = "weight") -> Origin:
        return Origin((*self._whole(f"{prefix}{gate}.{kind}").parts, *self._whole(f"{prefix}{up}.{kind}").parts))

    def _qkv(self, prefix: str, suffix: str) -> Origin:
        """Of each group the rows of its query heads, its key head and its value head."""
        query, key, value = (self._weights[f"{prefix}{kind}_proj.{suffix}"] for kind in "qkv")
        groups, head = self._model.num_key_value_heads, self._model.head_dim
        queries = query.shape[0] // groups
        heights = ((query, queries), (key, head), (value, head))
        return Origin((tuple(Block(weight, group * rows, (group + 1) * rows) for group in range(groups) for weight, rows in heights),))


def _cut(part: Sequence[Block], rank: int, ranks: int) -> Iterator[Block]:
    rows = sum(block.num_rows for block in part)
    first, stop = rows * rank // ranks, rows * (rank + 1) // ranks
    begin = 0
    for block in part:
        low, high = max(first, begin), min(stop, begin + block.num_rows)
        if low < high:
            yield Block(block.weight, block.first + low - begin, block.first + high - begin)
        begin += block.num_rows
