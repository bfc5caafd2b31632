"""Saving a run in Megatron's distributed format: float32 weights and moments whole by their keys, so that any layout reads any."""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import (
    ShardedObject,
    ShardedTensor,
    ShardedTensorFactory,
    apply_factories,
    is_main_replica,
)
from megatron.core.dist_checkpointing.serialization import get_default_save_sharded_strategy
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
from megatron.core.models.gpt import GPTModel
from megatron.core.optimizer import MegatronOptimizer

from primus_app.backends.megatron.optimizer import MOMENTS, gather_states
from primus_app.backends.megatron.weights import LocalWeight
from primus_app.run.checkpoints import surplus_checkpoints, unmark
from primus_app.run.reserve import full_disk_note

logger = logging.getLogger(__name__)

LAYOUT = {"singleton_local_shards": True}
"""Megatron's name for a key of its own for each layer, each expert, and gate and up projection."""
STATE_KEY = "optimizer.state.{moment}.{key}"
FORMAT = "torch_dist"

_OWN_WRITER = {"async_strategy": "mcore"} if "async_strategy" in signature(dist_checkpointing.save).parameters else {}
"""From 0.17 on Megatron would write in the background by a package that it does not install."""


class Checkpoints:
    """Writes steps of a run, in the background or not, and keeps the newest; ``on_saved(step)`` is called once one is complete."""

    def __init__(
        self,
        folder: Path,
        chunks: Sequence[GPTModel],
        weights: Sequence[LocalWeight],
        optimizer: MegatronOptimizer,
        *,
        keep: int,
        in_background: bool,
        on_saved: Callable[[int], None],
    ) -> None:
        self._folder, self._chunks, self._weights, self._optimizer = folder, chunks, weights, optimizer
        self._keep, self._on_saved = keep, on_saved
        self._queue = AsyncCallsQueue() if in_background else None
        self._under_way: int | None = None
        self._removals: list[threading.Thread] = []

    def save(self, step: int) -> float:
        """Write ``step``; the seconds that training stood still. All ranks together."""
        began = time.perf_counter()
        self.finish()
        path = self._folder / f"step-{step}"
        if dist.get_rank() == 0:
            unmark(path)  # Writing over a damaged one.
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        dist.barrier()
        with self._told(step):
            request = dist_checkpointing.save(
                self._state(step),
                str(path),
                sharded_strategy=get_default_save_sharded_strategy(FORMAT),
                async_sharded_save=self._queue is not None,
                **_OWN_WRITER,
            )
            if self._queue is not None:
                self._queue.schedule_async_request(request)
        if self._queue is None:
            self._complete(step)
        else:
            self._under_way = step
        return time.perf_counter() - began

    def look(self) -> None:
        """Whether what is written in the background is complete; all ranks together, once a step."""
        if self._under_way is not None:
            self._finish(wait=False)

    def finish(self) -> None:
        """Wait for what is written in the background. All ranks together."""
        if self._under_way is not None:
            self._finish(wait=True)

    def close(self) -> None:
        """Reached with a save under way only when training has failed: its writer is ended, as other ranks may not come to finish it."""
        if self._queue is not None and self._under_way is not None:
            for call in self._queue.async_calls:
                call.async_caller.close(abort=True)
        for removal in self._removals:
            removal.join()

    def _finish(self, *, wait: bool) -> None:
        assert self._queue is not None
        assert self._under_way is not None
        step = self._under_way
        with self._told(step):
            done = self._queue.maybe_finalize_async_calls(blocking=wait)
        if done:
            self._under_way = None
            self._complete(step)

    def _complete(self, step: int) -> None:
        self._on_saved(step)
        self.remove_surplus(step)

    def remove_surplus(self, newest: int) -> None:
        """Delete what is too much, in the background; ``newest`` is known to be good."""
        if dist.get_rank() == 0:
            for path in surplus_checkpoints(self._folder, self._keep, newest):
                unmark(path)
                removal = threading.Thread(target=shutil.rmtree, args=(path,), kwargs={"ignore_errors": True})
                removal.start()
                self._removals.append(removal)

    def _state(self, step: int) -> dict[str, Any]:
        """What is written: each tensor of the model in Megatron's own layout with float32 data, and its moments beside it.

        Of replicas one alone has the data; the others have room for it that they never touch.
        """
        found: dict[str, Any] = {}
        places = HostPlaces()
        known = {id(weight.tensor) for weight in self._weights}
        for number, chunk in enumerate(self._chunks):
            for place, entry in enumerate(nested_values(chunk.sharded_state_dict(metadata=LAYOUT))):
                if isinstance(entry, ShardedObject):
                    continue  # Transformer Engine's own notes, of fp8.
                name = f"{number}.{place}"
                if not isinstance(entry.data, torch.nn.Parameter):
                    found[name] = entry  # A buffer.
                    continue
                if id(entry.data) not in known:
                    raise RuntimeError(f"the optimizer's states of {entry.key} are not known")
                found[name] = _with_data(entry, entry.key, places.make(entry.data, "param"))
                found |= {
                    f"{moment}.{name}": _with_data(entry, STATE_KEY.format(moment=moment, key=entry.key), places.make(entry.data, moment))
                    for moment in MOMENTS
                }
        apply_factories(found)
        _divide_writing(found)
        tensors = [entry for entry in nested_values(found) if isinstance(entry, ShardedTensor)]
        places.want(entry.data for entry in tensors if is_main_replica(entry.replica_id))
        gather_states(self._optimizer, self._weights, places.wanted)
        return found | {"step": step}

    @contextmanager
    def _told(self, step: int) -> Iterator[None]:
        """What goes wrong while ``step`` is written, as one sentence."""
        try:
            yield
        except BaseException as error:
            full = full_disk_note(self._folder)
            if dist.get_rank() == 0:
                shutil.rmtree(self._folder / f"step-{step}", ignore_errors=True)
            raise RuntimeError(f"the checkpoint of step {step} could not be written ({type(error).__name__}: {error}){full}") from error


def _with_data(entry: Any, key: str, data: torch.Tensor) -> Any:
    if isinstance(entry, ShardedTensorFactory):
        return replace(entry, key=key, data=data)
    return replace(entry, key=key, data=data, dtype=data.dtype)


def _divide_writing(found: dict[str, Any]) -> None:
    """Replicas of the data divide the writing among them, as Megatron-LM does; each tensor is replica 0 of one of them."""
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    if group.size() > 1:
        strategy = get_default_save_sharded_strategy(FORMAT)
        FullyParallelSaveStrategyWrapper(strategy, group).apply_saving_parallelization(found)


class HostPlaces:
    """Where a checkpoint's numbers come to lie on the host, by parameter and by what of it; memory that nobody has touched is none.

    Attributes:
        wanted: what is to be filled, each a view into the room for a whole parameter.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[int, str]] = {}
        self.wanted: dict[tuple[int, str], list[torch.Tensor]] = {}

    def make(self, param: torch.Tensor, name: str) -> torch.Tensor:
        """Room for what ``name`` is of ``param``, in its shape, float32."""
        place = torch.from_numpy(np.empty(tuple(param.shape), np.float32))  # torch.empty fills it where training.deterministic.
        self._made[place.untyped_storage().data_ptr()] = (id(param), name)
        return place

    def want(self, tensors: Iterable[torch.Tensor]) -> None:
        """Those of ``tensors`` that lie in the room made here are to be filled; others are the model's own."""
        for tensor in tensors:
            if made := self._made.get(tensor.untyped_storage().data_ptr()):
                self.wanted.setdefault(made, []).append(tensor)
        held = sum(tensor.nbytes for views in self.wanted.values() for tensor in views)
        logger.debug("holds %d bytes of a checkpoint on the host", held)
