"""Weights under Hugging Face's names into TorchTitan's modules, whatever their layout, and out of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torchtitan.models.common.attention import FusedQKVLinear
from torchtitan.protocols.state_dict_adapter import BaseStateDictAdapter

from primus_app.backends.expert_stacks import apart, engine_weights
from primus_app.backends.hf_names import HfParameter, hf_buffers
from primus_app.backends.torchtitan.shards import OneColumn, fill_shard, is_sharded, numbered_rows
from primus_app.backends.weight_sources import SeededWeights, Source
from primus_app.config.schema import ModelConfig

LM_HEAD = "lm_head.weight"
_WRAPPERS = re.compile(r"(_checkpoint_wrapped_module|_orig_mod|_fsdp_wrapped_module)\.")
_EXPERT = re.compile(r"\.experts\.\d+\.")
_GATED = re.compile(r"\.experts\.\d+\.(?:gate|up)_proj\.")
_QKV = re.compile(r"\.self_attn\.[qkv]_proj\.")
_BIAS = ".expert_bias_E"
_COUNTS = ".tokens_per_expert_E"


def init_seeded(model_parts: list[nn.Module], model: ModelConfig, seed: int, adapter: BaseStateDictAdapter) -> None:
    """Fill the weights in place from (seed, Hugging Face name, index); the routers' biases and counts become 0.

    Raises RuntimeError where a parameter has no name in Hugging Face's checkpoint.
    """
    fill(model_parts, model, adapter, SeededWeights(model, seed))


@torch.no_grad()
def fill(model_parts: list[nn.Module], model: ModelConfig, adapter: BaseStateDictAdapter, source: Source) -> None:
    """Fill weights and routers' biases in place from ``source``; the routers' counts become 0.

    The parts may be materialised pipeline stages with parameters sharded by tensor, expert and data parallelism: each
    rank asks for its part of the matrices, without communication.
    Raises RuntimeError where a parameter has no name in Hugging Face's checkpoint.
    """
    convert = Converter(model, adapter)
    for part in model_parts:
        _zero_counts(part)
        targets = {**parameters_of(part), **{name: buffer for name, buffer in _buffers_of(part) if name.endswith(_BIAS)}}
        _fill(part, targets, model, apart(source, model), convert)


@torch.no_grad()
def fill_states(
    part: nn.Module, states: Mapping[str, torch.Tensor], model: ModelConfig, adapter: BaseStateDictAdapter, source: Source
) -> None:
    """Fill what an optimizer keeps of each parameter of ``part``, by the parameter's name, from ``source`` as ``fill`` does weights."""
    _fill(part, states, model, apart(source, model), Converter(model, adapter))


def parameters_of(part: nn.Module) -> dict[str, nn.Parameter]:
    """All parameters by their names without wrappers; a tied one by each of its names."""
    return {_WRAPPERS.sub("", name): weight for name, weight in part.named_parameters(remove_duplicate=False)}


def export_hf(model_parts: list[nn.Module], adapter: BaseStateDictAdapter) -> dict[str, torch.Tensor]:
    """The whole weights on the CPU under their Hugging Face names; all ranks of each part must call it together."""
    whole: dict[str, torch.Tensor] = {}
    for part in model_parts:
        for name, value in part.state_dict().items():
            tensor = value.full_tensor() if isinstance(value, DTensor) else value
            whole[_WRAPPERS.sub("", name)] = tensor.detach().cpu()
    return {name: value.contiguous() for name, value in _fresh(adapter).to_hf(whole).items()}


class Converter:
    """Hugging Face tensors to TorchTitan's, a group at a time, with the query, key and value merged where they are fused."""

    def __init__(self, model: ModelConfig, adapter: BaseStateDictAdapter) -> None:
        self.tied = model.tie_word_embeddings
        self.adapter = adapter

    def origins(self, group: Sequence[HfParameter], fused: Mapping[str, FusedQKVLinear]) -> dict[str, torch.Tensor]:
        """For TorchTitan's tensors [..., rows, columns] the rows of ``group``'s matrices that they are made of, as [..., rows, 1]."""
        return self(numbered_rows(group), fused, OneColumn(self.adapter.model_config))

    def __call__(
        self, tensors: Mapping[str, torch.Tensor], fused: Mapping[str, FusedQKVLinear], config: Any = None
    ) -> dict[str, torch.Tensor]:
        given = dict(tensors)
        # The adapters of tied models want one of the two shared tensors in every call.
        if invented := self.tied and "model.embed_tokens.weight" not in given:
            given[LM_HEAD] = torch.empty(0, device="meta")
        native = _fresh(self.adapter, config).from_hf(given)
        if invented:
            del native[LM_HEAD]
        for prefix in {name.rsplit(".", 2)[0] for name in native} & fused.keys():
            fused[prefix]._merge_qkv_on_load(fused[prefix], native, prefix + ".")
        return native


def _fresh(adapter: BaseStateDictAdapter, config: Any = None) -> BaseStateDictAdapter:
    # An adapter that has once converted a sharded model expects shards ever after.
    return type(adapter)(config or adapter.model_config, None)


def _buffers_of(part: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from ((_WRAPPERS.sub("", name), buffer) for name, buffer in part.named_buffers())


def _fill(part: nn.Module, targets: Mapping[str, torch.Tensor], model: ModelConfig, source: Source, convert: Converter) -> None:
    fused = {_WRAPPERS.sub("", name): module for name, module in part.named_modules() if isinstance(module, FusedQKVLinear)}
    missing = set(targets)
    for group in groups(model):
        shapes = convert({weight.name: torch.empty(weight.shape, device="meta") for weight in group}, fused)
        wanted = {name: targets[name] for name in shapes if name in targets}
        missing -= wanted.keys()
        wanted = {name: target for name, target in wanted.items() if _first_of(target, wanted) == name}
        for name, target in wanted.items():
            if target.shape != shapes[name].shape:
                raise RuntimeError(f"{name} is {tuple(target.shape)}, but its Hugging Face tensors make {tuple(shapes[name].shape)}")
        if wanted and not _fill_shards(wanted, group, fused, source, convert):
            for name, value in convert({weight.name: source.whole(weight) for weight in group}, fused).items():
                if name in wanted:
                    _copy_shard(wanted[name], value)
    if missing:
        raise RuntimeError(f"these parameters have no name in Hugging Face's checkpoint of {model.name}: {', '.join(sorted(missing))}")


def _first_of(target: torch.Tensor, among: Mapping[str, torch.Tensor]) -> str:
    """Of the names of a tied tensor, the one under which it is filled."""
    return next(name for name, other in among.items() if other is target)


def _fill_shards(
    wanted: Mapping[str, torch.Tensor],
    group: Sequence[HfParameter],
    fused: Mapping[str, FusedQKVLinear],
    source: Source,
    convert: Converter,
) -> bool:
    """Whether the group's tensors could be filled by parts; they are matrices of which this rank has a shard."""
    if any(len(weight.shape) != 2 for weight in group) or not all(is_sharded(target) for target in wanted.values()):
        return False
    origins = convert.origins(group, fused)
    shards = {name: target for name, target in wanted.items() if isinstance(target, DTensor)}
    if any(origins[name].shape != (*target.shape[:-1], 1) for name, target in shards.items()):
        return False
    return all(fill_shard(target, origins[name], group, source) for name, target in shards.items())


def groups(model: ModelConfig) -> Iterator[list[HfParameter]]:
    """Tensors that TorchTitan may hold as one: query, key and value, or one projection of a layer's experts, gpt_oss's gate and up."""
    yield from ([buffer] for buffer in hf_buffers(model))
    for _, neighbours in groupby(engine_weights(model), key=_block_of):
        by_projection: dict[str, list[HfParameter]] = {}
        for weight in neighbours:
            name = _GATED.sub(".experts.gate_up.", weight.name) if model.family == "gpt_oss" else weight.name
            by_projection.setdefault(_QKV.sub(".qkv.", _EXPERT.sub(".experts.", name)), []).append(weight)
        yield from by_projection.values()


def _block_of(weight: HfParameter) -> str:
    match = _EXPERT.search(weight.name) or _QKV.search(weight.name)
    return weight.name[: match.start()] if match else weight.name


def _copy_shard(target: torch.Tensor, whole: torch.Tensor) -> None:
    if not isinstance(target, DTensor):
        target.copy_(whole)
        return
    # src_data_rank=None: every rank has the whole tensor and cuts its own shard, without communication.
    source = whole.to(target.device)
    target.to_local().copy_(distribute_tensor(source, target.device_mesh, target.placements, src_data_rank=None).to_local())


def _zero_counts(part: nn.Module) -> None:
    for name, buffer in _buffers_of(part):
        if name.endswith(_COUNTS):
            (buffer.to_local() if isinstance(buffer, DTensor) else buffer).zero_()
