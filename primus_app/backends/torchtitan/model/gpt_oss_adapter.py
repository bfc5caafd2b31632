"""TorchTitan's names for gpt-oss's weights; upstream's adapter knows the quantised checkpoint alone, by names its tensors have lost."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torchtitan.protocols.state_dict_adapter import StateDictAdapter

OUTSIDE = {"model.embed_tokens.weight": "tok_embeddings.weight", "model.norm.weight": "norm.weight", "lm_head.weight": "lm_head.weight"}
IN_LAYER = {
    **{f"self_attn.{q}_proj.{kind}": f"attention.qkv_linear.w{q}.{kind}" for q in "qkv" for kind in ("weight", "bias")},
    "self_attn.o_proj.weight": "attention.wo.weight",
    "self_attn.o_proj.bias": "attention.wo.bias",
    "self_attn.sinks": "attention.sinks",
    "input_layernorm.weight": "attention_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.router.weight": "moe.router.gate.weight",
    "mlp.router.bias": "moe.router.gate.bias",
}
EXPERTS = "layers.{}.moe.routed_experts.inner_experts."
STACKS = {
    ("down_proj", "weight"): "mlp2_weight_EDF",
    ("down_proj", "bias"): "mlp2_bias_ED",
    ("gate_proj", "weight"): "mlp1_weight_EGD",
    ("gate_proj", "bias"): "mlp1_bias_EG",
}
ON_DISK = {
    "mlp1_weight_EGD": "gate_up_proj",
    "mlp1_bias_EG": "gate_up_proj_bias",
    "mlp2_weight_EDF": "down_proj",
    "mlp2_bias_ED": "down_proj_bias",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.(weight|bias)")
_NATIVE = re.compile(r"layers\.(\d+)\.(.+)")


class GptOssAdapter(StateDictAdapter):
    """From each expert's weights on their own (see expert_stacks) to TorchTitan's stacks, and from these to those on disk."""

    def from_hf(self, hf_state_dict: dict[str, Any]) -> dict[str, Any]:
        """Gate and up projection lie in turns, row by row; the experts of a projection must be given together."""
        native: dict[str, Any] = {}
        experts: dict[tuple[str, str, str], dict[int, Any]] = {}
        for name, value in hf_state_dict.items():
            if match := _EXPERT.fullmatch(name):
                layer, expert, projection, kind = match.groups()
                experts.setdefault((layer, projection, kind), {})[int(expert)] = value
            else:
                native[_native_name(name)] = value
        for (layer, projection, kind), values in experts.items():
            if projection == "up_proj":
                continue
            others = experts.get((layer, "up_proj", kind), {})
            turns = [_in_turns(value, others[expert]) if others else value for expert, value in sorted(values.items())]
            native[EXPERTS.format(layer) + STACKS[projection, kind]] = torch.stack(turns)
        return native

    def to_hf(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """As transformers keeps them: stacks of transposed matrices."""
        names = {there: here for here, there in OUTSIDE.items()}
        inside = {there: here for here, there in IN_LAYER.items()}
        found = {}
        for name, value in state_dict.items():
            match = _NATIVE.fullmatch(name)
            if match is None:
                found[names[name]] = value
            elif (stack := ON_DISK.get(name.rpartition(".")[2])) is not None:
                found[f"model.layers.{match[1]}.mlp.experts.{stack}"] = value.transpose(1, 2) if value.ndim == 3 else value
            elif match[2] in inside:
                found[f"model.layers.{match[1]}.{inside[match[2]]}"] = value
        return found


def _native_name(name: str) -> str:
    match = _LAYER.fullmatch(name)
    return f"layers.{match[1]}.{IN_LAYER[match[2]]}" if match else OUTSIDE[name]


def _in_turns(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.stack([gate, up], dim=1).flatten(0, 1)
