"""Experts that a Hugging Face checkpoint keeps in stacks, as matrices and biases of their own: what engines are made of.

gpt_oss has each layer's experts in stacks, transposed, with the columns of gate and up projection in turns (transformers' GptOssExperts).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from primus_app.backends.hf_names import HfParameter, hf_parameters
from primus_app.backends.weight_sources import Source
from primus_app.config.schema import ModelConfig

STACKS: dict[str, tuple[str, ...]] = {
    "gate_up_proj": ("gate_proj.weight", "up_proj.weight"),
    "gate_up_proj_bias": ("gate_proj.bias", "up_proj.bias"),
    "down_proj": ("down_proj.weight",),
    "down_proj_bias": ("down_proj.bias",),
}
"""What each expert has of a stack; of several, each has every other column."""


@dataclass(frozen=True)
class Piece:
    """One expert's matrix or bias, and where it lies: in ``stack`` the columns ``first``, ``first + step``, … of ``expert``."""

    weight: HfParameter
    stack: HfParameter
    expert: int
    first: int
    step: int


def engine_weights(model: ModelConfig) -> Iterator[HfParameter]:
    """The weights of ``model`` in order, as ``hf_parameters`` has them, but each expert's on its own, under the names of other families."""
    for weight in hf_parameters(model):
        pieces = list(_pieces(weight))
        yield from (piece.weight for piece in pieces) if pieces else (weight,)


def pieces_of(model: ModelConfig) -> dict[str, Piece]:
    """Every expert's matrix and bias that lies in a stack, by its name."""
    return {piece.weight.name: piece for weight in hf_parameters(model) for piece in _pieces(weight)}


def apart(source: Source, model: ModelConfig) -> Source:
    """``source``, which knows the stacks, for one that is asked for each expert's weights."""
    pieces = pieces_of(model)
    return _Apart(source, pieces) if pieces else source


def stacked(source: Source, model: ModelConfig) -> Source:
    """``source``, which knows each expert's weights, for one that is asked for the stacks."""
    pieces = pieces_of(model)
    return _Stacked(source, pieces) if pieces else source


class _Apart:
    def __init__(self, source: Source, pieces: Mapping[str, Piece]) -> None:
        self._source, self._pieces = source, pieces

    def whole(self, weight: HfParameter) -> torch.Tensor:
        piece = self._pieces.get(weight.name)
        if piece is None:
            return self._source.whole(weight)
        if len(weight.shape) == 1:
            row = self._source.part(piece.stack, slice(piece.expert, piece.expert + 1), slice(0, piece.stack.shape[1]))
            return row[0, piece.first :: piece.step].contiguous()
        return self.part(weight, slice(0, weight.shape[0]), slice(0, weight.shape[1]))

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        piece = self._pieces.get(weight.name)
        if piece is None:
            return self._source.part(weight, rows, columns)
        begin = piece.expert * piece.stack.shape[1]
        there = slice(begin + columns.start, begin + columns.stop)
        found = self._source.part(piece.stack, there, slice(rows.start * piece.step, rows.stop * piece.step))
        return found[:, piece.first :: piece.step].t().contiguous()


class _Stacked:
    def __init__(self, source: Source, pieces: Mapping[str, Piece]) -> None:
        self._source = source
        self._stacks: dict[str, dict[int, list[Piece]]] = {}
        for piece in pieces.values():
            self._stacks.setdefault(piece.stack.name, {}).setdefault(piece.expert, []).append(piece)

    def whole(self, weight: HfParameter) -> torch.Tensor:
        if weight.name not in self._stacks:
            return self._source.whole(weight)
        made = None
        for expert in range(weight.shape[0]):
            values = self._expert(weight, expert)
            made = values.new_empty(weight.shape) if made is None else made
            made[expert] = values
        assert made is not None
        return made

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        if weight.name not in self._stacks:
            return self._source.part(weight, rows, columns)
        height = weight.shape[1] if len(weight.shape) == 3 else 1
        first, last = rows.start // height, (rows.stop - 1) // height
        found = torch.cat([self._expert(weight, expert).view(height, -1)[:, columns] for expert in range(first, last + 1)])
        return found[rows.start - first * height : rows.stop - first * height]

    def _expert(self, weight: HfParameter, expert: int) -> torch.Tensor:
        """One expert's part of the stack, as it lies there."""
        made = None
        for piece in self._stacks[weight.name][expert]:
            values = self._source.whole(piece.weight).t()
            made = values.new_empty(weight.shape[1:]) if made is None else made
            made[..., piece.first :: piece.step] = values
        assert made is not None
        return made


def _pieces(stack: HfParameter) -> Iterator[Piece]:
    prefix, experts, name = stack.name.rpartition(".experts.")
    if not experts or name not in STACKS:
        return
    own = STACKS[name]
    width = stack.shape[-1] // len(own)
    for expert in range(stack.shape[0]):
        for first, part in enumerate(own):
            shape = (width,) if len(stack.shape) == 2 else (width, stack.shape[1])
            yield Piece(HfParameter(f"{prefix}.experts.{expert}.{part}", shape, stack.kind), stack, expert, first, len(own))
