"""TorchTitan's checkpoints as Hugging Face's tensors, any rectangle of them, and back; in one process without their layout."""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torchtitan.models.common.attention import FusedQKVLinear

from primus_app.backends.expert_stacks import stacked
from primus_app.backends.hf_names import HfParameter
from primus_app.backends.native_tensors import NativeTensor
from primus_app.backends.saved import MOMENTS, Saved
from primus_app.backends.stored_tensors import StoredTensors
from primus_app.backends.torchtitan.model import build_model_spec
from primus_app.backends.torchtitan.weights import Converter, groups
from primus_app.backends.weight_sources import Source
from primus_app.config.schema import ModelConfig

STATE_KEY = "optimizer.state.{key}.{moment}"


class Place(NamedTuple):
    """Row i of a weight is row ``rows[i]`` of the tensor ``key``, whose experts' rows count one after another."""

    key: str
    rows: torch.Tensor


class NativeLayout:
    """Which rows of Hugging Face's tensors TorchTitan's are made of, by its own adapter; the llama's permuted rows too.

    ``fused`` asks for parameters, which optimizer states are of, in place of what a checkpoint calls the weights: some modules
    hold query, key and value as one parameter, and store three.
    Raises UserError for a model that TorchTitan has not.
    """

    def __init__(self, model: ModelConfig) -> None:
        spec = build_model_spec(model, seq_len=model.max_position_embeddings, cpu=True, compute="fp32")
        with torch.device("meta"):
            module = spec.model.build()
        assert spec.state_dict_adapter is not None
        self.shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
        self.groups = [tuple(group) for group in groups(model)]
        self._fused = {name: part for name, part in module.named_modules() if isinstance(part, FusedQKVLinear)}
        self._convert = Converter(model, spec.state_dict_adapter(spec.model, None))
        self._number = {weight.name: number for number, group in enumerate(self.groups) for weight in group}
        self.places = lru_cache(maxsize=4)(self._places)

    def place(self, name: str, *, fused: bool) -> Place:
        """Where the weight ``name`` lies."""
        return self.places(self._number[name], fused)[name]

    def origins(self, group: Sequence[HfParameter], *, fused: bool) -> dict[str, torch.Tensor]:
        """For each tensor that is made of ``group``: of each of its rows the number, counted through the group."""
        found = self._convert.origins(group, self._fused if fused else {})
        return {key: rows.reshape(-1) for key, rows in found.items()}

    def _places(self, number: int, fused: bool) -> dict[str, Place]:
        group = self.groups[number]
        origins = self.origins(group, fused=fused)
        return {weight.name: _place(first, weight, origins) for weight, first in zip(group, _first_rows(group), strict=True)}


class StoredSource:
    """Weights, or one of the moments where ``moment`` names it; float32."""

    def __init__(self, tensors: StoredTensors, layout: NativeLayout, moment: str | None = None) -> None:
        self._tensors, self._layout, self._moment = tensors, layout, moment

    def whole(self, weight: HfParameter) -> torch.Tensor:
        """The tensor, in its shape."""
        return self._rows(weight, slice(0, weight.shape[0]), None).view(weight.shape)

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        """A rectangle of a matrix."""
        return self._rows(weight, rows, columns)

    def _rows(self, weight: HfParameter, rows: slice, columns: slice | None) -> torch.Tensor:
        native, there = self._layout.place(weight.name, fused=self._moment is not None)
        key = STATE_KEY.format(moment=self._moment, key=native) if self._moment else native
        shape, wanted = self._tensors.shape(key), there[rows]
        first, stop = int(wanted.min()), int(wanted.max()) + 1
        region = [slice(first, stop)]
        in_stack = len(shape) > len(weight.shape)
        if in_stack:  # An expert's rows lie in one matrix of the stack, or in one row of biases.
            expert, height = first // shape[1], shape[1]
            region = [slice(expert, expert + 1), slice(first - expert * height, stop - expert * height)]
        if len(weight.shape) > 1:
            region.append(columns or slice(0, shape[-1]))
        found = self._tensors.read(key, region).float()
        found = found[0] if in_stack else found
        in_order = stop - first == len(wanted) and torch.equal(wanted, torch.arange(first, stop))
        return found if in_order else found[wanted - first]


def open_step(model: ModelConfig, folder: Path) -> Saved:
    """Every weight of ``model`` in the step folder. Raises KeyError for one that is not there."""
    tensors, layout = StoredTensors(folder), NativeLayout(model)
    for name in layout.shapes:
        tensors.shape(name)
    weights, *moments = (stacked(StoredSource(tensors, layout, moment), model) for moment in (None, *MOMENTS))
    return Saved(weights, dict(zip(MOMENTS, moments, strict=True)))


def native_tensors(model: ModelConfig) -> list[NativeTensor]:
    """Everything that TorchTitan reads of a checkpoint of ``model``'s weights. Raises UserError for a model that it has not."""
    layout = NativeLayout(model)
    found = [tensor for group in layout.groups for tensor in _made_of(group, layout)]
    if missing := layout.shapes.keys() - {tensor.key for tensor in found}:
        raise RuntimeError(f"these tensors have no name in Hugging Face's checkpoint of {model.name}: {', '.join(sorted(missing))}")
    return found


def _made_of(group: tuple[HfParameter, ...], layout: NativeLayout) -> Iterator[NativeTensor]:
    for key in layout.origins(group, fused=False):
        yield NativeTensor(key, layout.shapes[key], group, partial(_make, layout, group, key))


def _make(layout: NativeLayout, group: Sequence[HfParameter], key: str, source: Source) -> torch.Tensor:
    """The rows of the tensor, one weight after another: in memory are it and one of them."""
    rows, made = layout.origins(group, fused=False)[key], None
    for weight, first in zip(group, _first_rows(group), strict=True):
        own = (rows >= first) & (rows < first + weight.shape[0])
        if not own.any():
            continue
        values, wanted = source.whole(weight), rows[own] - first
        if len(wanted) == len(rows) == weight.shape[0]:
            in_order = torch.equal(wanted, torch.arange(len(rows)))
            return values if in_order else values[wanted]
        if made is None:
            made = values.new_empty((len(rows), *weight.shape[1:]))
        made[own] = values[wanted].to(made.dtype)
    assert made is not None
    return made


def _place(first: int, weight: HfParameter, origins: dict[str, torch.Tensor]) -> Place:
    for key, rows in origins.items():
        own = torch.nonzero((rows >= first) & (rows < first + weight.shape[0])).view(-1)
        if len(own):
            return Place(key, own[torch.argsort(rows[own])])
    raise KeyError(weight.name)


def _first_rows(group: Sequence[HfParameter]) -> Iterator[int]:
    """Of each weight the number of its first row, counted through the group."""
    first = 0
    for weight in group:
        yield first
        first += weight.shape[0]
