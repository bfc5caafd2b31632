"""Megatron's distributed checkpoints as Hugging Face's tensors, any rectangle of them, and back; in one process without their layout."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from primus_app.backends.expert_stacks import engine_weights, stacked
from primus_app.backends.hf_names import HfParameter, hf_buffers
from primus_app.backends.megatron.model_support import check_model_support
from primus_app.backends.megatron.names import Block, Origins
from primus_app.backends.native_tensors import NativeTensor
from primus_app.backends.saved import MOMENTS, Saved
from primus_app.backends.stored_folder import MEGATRON_MARK
from primus_app.backends.stored_tensors import StoredTensors
from primus_app.backends.weight_sources import Source
from primus_app.config.errors import UserError
from primus_app.config.schema import ModelConfig

STATE_KEY = "optimizer.state.{moment}.{key}"
OPTIMIZER = "optimizer."
LAYOUT = {"singleton_local_shards": True}
"""Megatron's name for a key of its own for each layer, each expert, and gate and up projection."""

FORMAT = {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}
"""dist_checkpointing's words for torch's distributed checkpoint (megatron/core/dist_checkpointing/core.py)."""

ENDINGS = ("_w", "_v")
"""With a key for each layer, Megatron keeps gate and up projection apart: the parts of an origin by their endings."""

_EXPERT = re.compile(r"(?<=\.mlp\.experts\.)local_experts(?=\.\d)")
_STORED_EXPERT = re.compile(r"(?<=\.mlp\.experts\.)experts(?=\.\d)")
_GATED = re.compile(r"(\.linear_fc1\.(?:weight|bias))(_w|_v)$")

ALSO = (
    (".input_layernorm.weight", ".self_attention.linear_qkv.layer_norm_weight"),
    (".pre_mlp_layernorm.weight", ".mlp.linear_fc1.layer_norm_weight"),
    (".self_attention.q_layernorm.weight", ".self_attention.linear_q_up_proj.layer_norm_weight"),
    (".self_attention.kv_layernorm.weight", ".self_attention.linear_kv_up_proj.layer_norm_weight"),
)
"""What a layer norm is called by a model that has it in the next projection: with Transformer Engine or without, layer by layer."""


@dataclass(frozen=True)
class Place:
    """Rows ``first`` to ``stop`` of a weight lie from row ``at`` on in the tensor ``key``."""

    key: str
    at: int
    first: int
    stop: int


class StoredSource:
    """Weights, or one of the moments where ``moment`` names it; float32."""

    def __init__(self, tensors: StoredTensors, places: Mapping[str, list[Place]], moment: str | None = None) -> None:
        self._tensors, self._places, self._moment = tensors, places, moment

    def whole(self, weight: HfParameter) -> torch.Tensor:
        """The tensor, in its shape."""
        return self._rows(weight, slice(0, weight.shape[0]), None).view(weight.shape)

    def part(self, weight: HfParameter, rows: slice, columns: slice) -> torch.Tensor:
        """A rectangle of a matrix."""
        return self._rows(weight, rows, columns)

    def _rows(self, weight: HfParameter, rows: slice, columns: slice | None) -> torch.Tensor:
        parts = []
        for place in self._places[weight.name]:
            first, stop = max(rows.start, place.first), min(rows.stop, place.stop)
            if first < stop:
                key = STATE_KEY.format(moment=self._moment, key=place.key) if self._moment else place.key
                region = [slice(place.at + first - place.first, place.at + stop - place.first)]
                region += [columns or slice(0, size) for size in self._tensors.shape(key)[1:]]
                parts.append(self._tensors.read(key, region).float())
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def open_step(model: ModelConfig, folder: Path) -> Saved:
    """Every weight of ``model`` in the step folder. Raises KeyError for one that is not there, whole."""
    tensors, origins = StoredTensors(folder), Origins(model)
    places: dict[str, list[Place]] = {}
    for key in tensors.keys():  # noqa: SIM118 — no mapping
        at = 0
        for block in () if key.startswith(OPTIMIZER) else _blocks(key, origins):
            listed = places.setdefault(block.weight.name, [])
            # A norm may be there by two names.
            if not any(place.first == block.first for place in listed):
                listed.append(Place(key, at, block.first, block.stop))
            at += block.num_rows
    for weight in (*engine_weights(model), *hf_buffers(model)):
        if sum(place.stop - place.first for place in places.get(weight.name, ())) != weight.shape[0]:
            raise KeyError(f"{weight.name} is not in {folder}, or not whole")
        places[weight.name].sort(key=lambda place: place.first)
    weights, *moments = (stacked(StoredSource(tensors, places, moment), model) for moment in (None, *MOMENTS))
    return Saved(weights, dict(zip(MOMENTS, moments, strict=True)))


def native_tensors(model: ModelConfig) -> list[NativeTensor]:
    """Everything that Megatron reads of a checkpoint of ``model``'s weights, with a key for each layer, expert, gate and up projection.

    Norms are there by each of their names, so that a model with Transformer Engine's layers and one without find them.
    Raises UserError for a model that Megatron has not.
    """
    if problems := check_model_support(model):
        raise UserError(problems)
    origins = Origins(model)
    return [tensor for name in origins.names() for tensor in _made_of(name, origins)]


def write_marks(folder: Path) -> None:
    """common.pt, and metadata.json by which dist_checkpointing knows its format; what Megatron-LM asks of the names' layout is in it."""
    torch.save({"content_metadata": LAYOUT}, folder / MEGATRON_MARK)
    (folder / "metadata.json").write_text(json.dumps(FORMAT) + "\n", encoding="utf-8")


def _blocks(key: str, origins: Origins) -> Sequence[Block]:
    """What the stored tensor ``key`` is made of; nothing for one that holds no weight of Hugging Face's."""
    name = _STORED_EXPERT.sub("local_experts", key)
    gated = _GATED.search(name)
    try:
        origin = origins.of(_GATED.sub(r"\1", name))
    except KeyError:
        return ()
    return origin.parts[ENDINGS.index(gated[2])] if gated else origin.blocks


def _made_of(name: str, origins: Origins) -> Iterator[NativeTensor]:
    parts, stored = origins.of(name).parts, _EXPERT.sub("experts", name)
    gated = len(parts) == 2
    keys = [f"{stored}{ending}" for ending in ENDINGS] if gated else [stored, *_other_names(stored, origins)]
    for number, key in enumerate(keys):
        blocks = parts[number if gated else 0]
        weights = tuple({block.weight.name: block.weight for block in blocks}.values())
        shape = (sum(block.num_rows for block in blocks), *weights[0].shape[1:])
        yield NativeTensor(key, shape, weights, partial(_make, blocks, weights))


def _other_names(key: str, origins: Origins) -> Iterator[str]:
    for here, there in ALSO:
        if key.endswith(here) and _blocks(other := key.removesuffix(here) + there, origins):
            yield other


def _make(blocks: Sequence[Block], weights: Sequence[HfParameter], source: Source) -> torch.Tensor:
    """Each weight is read once: of those in rows of several, one copy beside the tensor is in memory."""
    if len(blocks) == 1:
        return source.whole(weights[0])
    rows, made = sum(block.num_rows for block in blocks), None
    for weight in weights:
        values, at = source.whole(weight), 0
        made = values.new_empty((rows, *weight.shape[1:])) if made is None else made
        for block in blocks:
            if block.weight is weight:
                made[at : at + block.num_rows] = values[block.first : block.stop].to(made.dtype)
            at += block.num_rows
    assert made is not None
    return made
