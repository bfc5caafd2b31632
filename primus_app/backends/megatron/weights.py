"""Weights under Hugging Face's names into Megatron's modules, whatever their layout: each rank reads its own part alone."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel

from primus_app.backends.megatron.names import Block, Origins
from primus_app.backends.weight_sources import Source
from primus_app.config.schema import ModelConfig

_WRAPPERS = re.compile(r"^(module\.)+")
_LAYER = re.compile(r"^decoder\.layers\.(\d+)\.")
_EXPERT = re.compile(r"(?<=\.local_experts\.)\d+(?=\.)|(?<=experts\.linear_fc[12]\.weight)\d+$|(?<=experts\.linear_fc[12]\.bias)\d+$")
_EXPERTS = ".mlp.experts."
EXPERT_BIAS = ".router.expert_bias"


@dataclass(frozen=True)
class LocalWeight:
    """One tensor of this rank and the rows and columns of Hugging Face's tensors that it holds.

    ``name`` counts layers and experts through the whole model.
    """

    name: str
    tensor: torch.Tensor
    blocks: tuple[Block, ...]
    columns: slice

    def read(self, source: Source) -> torch.Tensor:
        """Its values from ``source``, float32 on the CPU, in its own shape."""
        if self.tensor.ndim == 1:
            parts = [source.whole(block.weight)[block.first : block.stop] for block in self.blocks]
        else:
            parts = [source.part(block.weight, slice(block.first, block.stop), self.columns) for block in self.blocks]
        return torch.cat([part.float() for part in parts]).view(self.tensor.shape)


def local_weights(chunks: Sequence[GPTModel], model: ModelConfig) -> list[LocalWeight]:
    """Every parameter and every selection bias of this rank. Raises RuntimeError for one without a name in Hugging Face's checkpoint."""
    origins, found, unknown = Origins(model), [], []
    for chunk in chunks:
        _keep_biases_float32(chunk)
        for local, tensor in _tensors(chunk):
            name = global_name(chunk, local)
            try:
                found.append(_local_weight(name, tensor, origins))
            except KeyError:
                unknown.append(name)
    if unknown:
        raise RuntimeError(f"these parameters have no name in Hugging Face's checkpoint of {model.name}: {', '.join(sorted(unknown))}")
    return found


@torch.no_grad()
def fill(weights: Sequence[LocalWeight], source: Source) -> None:
    """Set all of ``weights`` in place from ``source``."""
    for weight in weights:
        weight.tensor.copy_(weight.read(source))


def global_name(chunk: GPTModel, local: str) -> str:
    """A parameter's name with layers and experts counted through the whole model, where a chunk counts its own."""
    name = _WRAPPERS.sub("", local)
    if match := _LAYER.match(name):
        layer = chunk.decoder.layers[int(match[1])].layer_number - 1
        name = f"decoder.layers.{layer}.{name[match.end() :]}"
    ranks = parallel_state.get_expert_model_parallel_world_size()
    if _EXPERTS in name and ranks > 1:
        first = parallel_state.get_expert_model_parallel_rank() * (chunk.config.num_moe_experts // ranks)
        name = _EXPERT.sub(lambda match: str(first + int(match[0])), name)
    return name


def _keep_biases_float32(chunk: GPTModel) -> None:
    """Megatron brings the routers' selection biases back from bfloat16 at the first forward pass, which is after they are filled."""
    for module in chunk.modules():
        if hasattr(module, "_maintain_float32_expert_bias"):
            module._maintain_float32_expert_bias()


def _tensors(chunk: GPTModel) -> Iterator[tuple[str, torch.Tensor]]:
    yield from chunk.named_parameters()
    yield from ((name, buffer) for name, buffer in chunk.named_buffers() if name.endswith(EXPERT_BIAS))


def _local_weight(name: str, tensor: torch.Tensor, origins: Origins) -> LocalWeight:
    origin = origins.of(name)
    rank, ranks = _tensor_parallel(name)
    divided = getattr(tensor, "tensor_model_parallel", False) and ranks > 1
    by_rows = divided and tensor.partition_dim == 0
    blocks = origin.share(rank, ranks) if by_rows else origin.blocks
    width = tensor.shape[1] if tensor.ndim == 2 else 0
    first = rank * width if divided and not by_rows else 0
    if sum(block.num_rows for block in blocks) != tensor.shape[0]:
        raise RuntimeError(
            f"{name} has {tensor.shape[0]} rows, but its Hugging Face tensors make {sum(block.num_rows for block in blocks)}"
        )
    return LocalWeight(name, tensor, blocks, slice(first, first + width))


def _tensor_parallel(name: str) -> tuple[int, int]:
    """This rank's place among those that share the matrices of ``name``."""
    if _EXPERTS in name:
        return parallel_state.get_expert_tensor_parallel_rank(), parallel_state.get_expert_tensor_parallel_world_size()
    return parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_tensor_model_parallel_world_size()
