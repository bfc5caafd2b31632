"""Megatron's optimizers from outside: the learning rate, and of each parameter the float32 copy and the moments that this rank holds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import DistributedOptimizer, MegatronOptimizer, OptimizerConfig, get_megatron_optimizer

from primus_app.backends.megatron.weights import LocalWeight
from primus_app.backends.weight_sources import Source

MOMENTS = ("exp_avg", "exp_avg_sq")

Places = Mapping[tuple[int, str], Sequence[torch.Tensor]]
"""Views into room for whole parameters on the host, to be filled; by a parameter's id and ``param`` or the name of a moment."""


class Held(NamedTuple):
    """Elements ``start`` to ``stop`` of a flattened parameter of the model, which one optimizer of this rank moves as ``main``.

    ``group`` are the ranks that hold the other elements, None where there are none.
    """

    param: torch.nn.Parameter
    main: torch.Tensor
    start: int
    stop: int
    optimizer: torch.optim.Optimizer
    group: Any


def build_optimizer(config: OptimizerConfig, chunks: Sequence[DistributedDataParallel]) -> MegatronOptimizer:
    """Megatron's own, which leaves 1-D tensors undecayed as the design has it."""
    return get_megatron_optimizer(config, list(chunks), use_gloo_process_groups=False)


def set_rate(optimizer: MegatronOptimizer, rate: float, weight_decay: float) -> None:
    """The learning rate of the next step, for all parameters; the decay, for those that Megatron does not except from it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["weight_decay"] = weight_decay * group["wd_mult"]


def held_parameters(optimizer: MegatronOptimizer) -> Iterator[Held]:
    """What this rank's optimizers move; with the distributed optimizer some parameters are not here at all."""
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        if getattr(part, "is_stub_optimizer", False):
            continue
        if isinstance(part, DistributedOptimizer):
            yield from _distributed(part)
        else:
            yield from _whole(part)


@torch.no_grad()
def set_main_weights(optimizer: MegatronOptimizer, weights: Sequence[LocalWeight], source: Source) -> None:
    """The float32 copies from ``source``, where the model's own are of another format and so have lost digits."""
    by_param = _by_param(weights)
    for held in held_parameters(optimizer):
        if held.main.data_ptr() != held.param.data_ptr() or held.main.dtype != held.param.dtype:
            held.main.copy_(by_param[id(held.param)].read(source).view(-1)[held.start : held.stop].view(held.main.shape))


@torch.no_grad()
def set_moments(optimizer: MegatronOptimizer, weights: Sequence[LocalWeight], step: int, sources: dict[str, Source]) -> None:
    """The moments of AdamW from ``sources``, by their names in MOMENTS, after ``step`` steps."""
    by_param = _by_param(weights)
    for held in held_parameters(optimizer):
        weight, state = by_param[id(held.param)], held.optimizer.state[held.main]
        for name in MOMENTS:
            values = weight.read(sources[name]).view(-1)[held.start : held.stop]
            state[name] = values.to(held.main.device).view(held.main.shape).clone()
        # A tensor of its own for each parameter: one that all share would count every parameter's steps.
        state["step"] = torch.tensor(float(step))
        if not isinstance(held.optimizer, torch.optim.AdamW):
            del state["step"]  # Fused optimizers count in their groups.
            for group in held.optimizer.param_groups:
                group["step"] = step


@torch.no_grad()
def gather_states(optimizer: MegatronOptimizer, weights: Sequence[LocalWeight], places: Places) -> None:
    """Fill ``places`` with their parts of the whole parameters' float32 weights and moments.

    All ranks that share a distributed optimizer must call it together, with places or none; they walk through the parameters in one order.
    Raises RuntimeError for a parameter that no optimizer moves.
    """
    held = {id(each.param): each for each in held_parameters(optimizer)}
    groups = _groups(optimizer)
    for weight in weights:
        param = weight.tensor
        if isinstance(param, torch.nn.Parameter):
            if id(param) not in held and id(param) not in groups:
                raise RuntimeError(f"no optimizer moves {weight.name}")
            _gather(param, held.get(id(param)), groups.get(id(param)), places)


def _gather(param: torch.Tensor, held: Held | None, group: Any, places: Places) -> None:
    state = {} if held is None else {"param": held.main, **{name: held.optimizer.state[held.main][name] for name in MOMENTS}}
    for name in ("param", *MOMENTS):
        wanted = places.get((id(param), name), ())
        if group is not None:
            whole = torch.zeros(param.numel(), device=param.device)
            if held is not None:
                whole[held.start : held.stop] = state[name].view(-1)
            torch.distributed.all_reduce(whole, group=group)
        elif wanted:
            whole = state[name].detach()
        for place in wanted:
            place.copy_(whole.as_strided(place.shape, place.stride(), whole.storage_offset() + place.storage_offset()))


def _groups(optimizer: MegatronOptimizer) -> dict[int, Any]:
    """The ranks that share each parameter's optimizer states, by the parameter's id."""
    found: dict[int, Any] = {}
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        if isinstance(part, DistributedOptimizer) and not getattr(part, "is_stub_optimizer", False):
            for buffer in part.buffers:
                found |= {id(param): part.data_parallel_group for param in buffer.params}
    return found


def _distributed(part: DistributedOptimizer) -> Iterator[Held]:
    for param, (group, place) in part.model_param_group_index_map.items():
        main = part.optimizer.param_groups[group]["params"][place]
        span = part._get_model_param_range_map(param)["param"]
        yield Held(param, main, span.start, span.end, part.optimizer, part.data_parallel_group)


def _whole(part: MegatronOptimizer) -> Iterator[Held]:
    pairs = [(param, param) for group in part.optimizer.param_groups for param in group["params"]]
    if hasattr(part, "float16_groups"):
        halves = zip(part.float16_groups, part.fp32_from_float16_groups, strict=True)
        pairs = [pair for params, mains in halves for pair in zip(params, mains, strict=True)]
        pairs += [(param, param) for params in part.fp32_from_fp32_groups for param in params]
    for param, main in pairs:
        yield Held(param, main, 0, param.numel(), part.optimizer, None)


def _by_param(weights: Sequence[LocalWeight]) -> dict[int, LocalWeight]:
    return {id(weight.tensor): weight for weight in weights}
