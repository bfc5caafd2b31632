"""The memory model's activation bytes of a layer, against a count on TorchTitan's own modules in a real forward pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from primus_app.config.schema import ModelConfig
from primus_app.plan.memory.layer_bytes import layer_widths
from primus_app.plan.workload import Layout, Workload

pytestmark = pytest.mark.slow

BATCH, LENGTH = 3, 64


def kept_by(layer: torch.nn.Module, hidden: torch.Tensor, *arguments: Any) -> int:
    """Bytes of all storages that autograd keeps of one layer, each storage once, without weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    alive: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        alive[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(hidden, *arguments)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in alive.items() if place not in weights)


@pytest.mark.parametrize("name", ["llama_tiny", "qwen3_tiny", "qwen3_moe_tiny", "deepseek_v3_tiny", "gpt_oss_tiny"])
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_bytes_of_every_layer(name: str, compute: Any, model_of: Callable[..., ModelConfig], seeded_model: Callable[..., Any]) -> None:
    from primus_app.backends.torchtitan.attention import causal_block_mask

    model = model_of(name)
    format_ = {"fp32": torch.float32, "bf16": torch.bfloat16}[compute]
    module = seeded_model(model, 0, seq_len=LENGTH, compute=compute)
    for weight in module.parameters():
        weight.data = weight.data.to(format_)
    positions = torch.arange(LENGTH).expand(BATCH, LENGTH)
    mask = causal_block_mask(BATCH, LENGTH, torch.device("cpu"))
    workload = Workload(model, LENGTH, BATCH, "torchtitan", compute, "1f1b", model.vocab_size, fused=False)
    widths, layout = layer_widths(workload, selective=False), Layout(*(1,) * 8, BATCH, 1, False, True, 0)
    leading = model.num_hidden_layers if model.moe is None else model.moe.first_k_dense_replace
    for index, layer in enumerate(module.layers.values()):
        hidden = torch.randn(BATCH, LENGTH, model.hidden_size, dtype=format_, requires_grad=True)
        kind = widths.dense if index < leading else widths.experts
        assert kind is not None
        offsets = 4 * model.moe.num_experts if kind is widths.experts and model.moe is not None else 0
        found = kept_by(layer, hidden, mask, positions)
        # Where experts begin is kept once for all tokens.
        assert found == pytest.approx(kind.bytes(workload, layout) + offsets, rel=0 if compute == "fp32" else 0.05)
