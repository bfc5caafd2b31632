"""A rank's shard of a weight from the rows of Hugging Face's tensors that it is made of, without the rest of them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from primus_app.backends.hf_names import HfParameter
from primus_app.backends.weight_sources import Source


class OneColumn:
    """A model's configuration whose matrices have one column, so that TorchTitan's adapters carry the numbers of rows at little cost."""

    dim = 1

    def __init__(self, config: Any) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


class Run(NamedTuple):
    """Rows of one tensor that lie one after another there, and from ``at`` on in the shard."""

    weight: int
    rows: slice
    at: int


def is_sharded(target: torch.Tensor) -> bool:
    """Whether this rank has less than the whole."""
    return isinstance(target, DTensor) and any(
        not isinstance(placement, Replicate) and target.device_mesh.size(dim) > 1 for dim, placement in enumerate(target.placements)
    )


def numbered_rows(group: Sequence[HfParameter]) -> dict[str, torch.Tensor]:
    """For each matrix of ``group`` the numbers of its rows, [rows, 1], counted through the group; of a vector [rows]."""
    found, first = {}, 0
    for weight in group:
        rows = torch.arange(first, first + weight.shape[0])
        found[weight.name] = rows if len(weight.shape) == 1 else rows.unsqueeze(1)
        first += weight.shape[0]
    return found


def fill_shard(target: DTensor, origins: torch.Tensor, group: Sequence[HfParameter], source: Source) -> bool:
    """Fill this rank's part of ``target`` [..., rows, columns]; ``origins`` [..., rows, 1] says which row of ``group`` each row is.

    False, with nothing done, where the shard's columns do not lie one after another.
    """
    local = target.to_local()
    if local.numel() == 0:
        return True
    columns = _local(torch.arange(target.shape[-1]).expand(target.shape), target).reshape(-1, local.shape[-1])[0]
    rows = _local(origins.expand(target.shape), target).reshape(-1, local.shape[-1])[:, 0]
    first, last = int(columns[0]), int(columns[-1])
    if last - first + 1 != columns.numel():
        return False
    made = torch.empty(rows.numel(), columns.numel())
    for run in runs(rows.tolist(), group):
        made[run.at : run.at + run.rows.stop - run.rows.start] = source.part(group[run.weight], run.rows, slice(first, last + 1))
    local.copy_(made.view(local.shape))
    return True


def runs(rows: Sequence[int], group: Sequence[HfParameter]) -> Iterator[Run]:
    """The rows, numbered through ``group``, as stretches of its tensors."""
    begins = [0]
    for weight in group:
        begins.append(begins[-1] + weight.shape[0])
    at = 0
    while at < len(rows):
        which = next(number for number in range(len(group)) if begins[number] <= rows[at] < begins[number + 1])
        end = at + 1
        while end < len(rows) and rows[end] == rows[end - 1] + 1 and rows[end] < begins[which + 1]:
            end += 1
        yield Run(which, slice(rows[at] - begins[which], rows[end - 1] - begins[which] + 1), at)
        at = end


def _local(whole: torch.Tensor, like: DTensor) -> torch.Tensor:
    """This rank's part of a tensor that all ranks have, cut as ``like`` is; ``src_data_rank=None`` asks for no communication."""
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None).to_local()
