"""A saved step in Megatron's distributed format as Hugging Face's tensors, any rectangle of them, in one process without its layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from primus_app.backends.hf_names import HfParameter
from primus_app.backends.megatron.names import Origins
from primus_app.backends.saved import Saved
from primus_app.backends.stored_tensors import StoredTensors
from primus_app.config.schema import ModelConfig

STATE_KEY = "optimizer.state.{moment}.{key}"
MOMENTS = ("exp_avg", "exp_avg_sq")
GATED = (("_w", 0), ("_v", 1))
"""With a key for each layer, Megatron keeps gate and up projection apart: the parts of an origin by their endings."""


@dataclass(frozen=True)
class Place:
    """Rows ``first`` to ``stop`` of a weight lie from row ``at`` on in the tensor ``key``."""

    key: str
    at: int
    first: int
    stop: int


class StoredSource:
    """Weights, or one of the moments where ``moment`` names it."""

    def __init__(self, tensors: StoredTensors, places: Mapping[str, list[Place]], moment: str | None = None) -> None:
        self._tensors, self._places, self._moment = tensors, places, moment

    def whole(self, weight: HfParameter) -> torch.Tensor:
        """The tensor, in its shape, float32."""
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
                rest = self._tensors.shape(key)[1:]
                region += [columns or slice(0, size) for size in rest]
                parts.append(self._tensors.read(key, region).float())
        return torch.cat(parts)


def open_step(model: ModelConfig, folder: Path) -> Saved:
    """Every weight of ``model`` in the step folder. Raises KeyError for one that is not there."""
    tensors, origins = StoredTensors(folder), Origins(model)
    places: dict[str, list[Place]] = {}
    for name in origins.names():
        parts = origins.of(name).parts
        apart = len(parts) == 2 and name not in tensors
        for number, part in enumerate(parts):
            key, at = (name + GATED[number][0], 0) if apart else (name, sum(block.num_rows for each in parts[:number] for block in each))
            if key not in tensors:
                raise KeyError(f"{key} is not in {folder}")
            for block in part:
                places.setdefault(block.weight.name, []).append(Place(key, at, block.first, block.stop))
                at += block.num_rows
    for listed in places.values():
        listed.sort(key=lambda place: place.first)
    return Saved(StoredSource(tensors, places), {moment: StoredSource(tensors, places, moment) for moment in MOMENTS})
