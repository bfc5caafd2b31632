"""What has to be divisible by what: heads, widths, vocabulary, layers, experts and the sequence, by the degrees of the layout."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from primus_app.config.errors import Problem
from primus_app.config.schema import ModelConfig, ParallelConfig, TrainingConfig
from primus_app.plan.neighbours import divisors, nearest, nearest_multiples, offer
from primus_app.plan.stages import split_layers

Fits = Callable[[ParallelConfig], bool]
"""Whether the machines hold a layout."""


@dataclass(frozen=True)
class Share:
    """One size of the model that a degree has to divide."""

    degree: str
    name: str
    size: int


def check_divisibility(
    model: ModelConfig, training: TrainingConfig, parallel: ParallelConfig, fits: Fits = lambda layout: True
) -> list[Problem]:
    """Everything in the model and the sequence that the layout does not divide; ``fits`` narrows the layouts that are offered."""
    problems = [problem for degree in ("tp", "etp", "ep") for problem in _share_problems(model, parallel, degree, fits)]
    return [
        *problems,
        *_no_experts(model, parallel),
        *_layer_problems(model, parallel, fits),
        *_sequence_problems(model, training, parallel),
    ]


def shares(model: ModelConfig) -> list[Share]:
    """Every size that tp, etp and ep have to divide."""
    found = [Share("tp", "num_attention_heads", model.num_attention_heads)]
    if model.mla is None:
        found.append(Share("tp", "num_key_value_heads", model.num_key_value_heads))
    moe = model.moe
    if moe is None or moe.first_k_dense_replace > 0:
        found.append(Share("tp", "intermediate_size", model.intermediate_size))
    if moe is not None:
        if moe.num_shared_experts:
            found.append(Share("tp", "the shared experts' width", moe.num_shared_experts * moe.moe_intermediate_size))
        found += [Share("etp", "moe.moe_intermediate_size", moe.moe_intermediate_size), Share("ep", "moe.num_experts", moe.num_experts)]
    return [*found, Share("tp", "vocab_size", model.vocab_size)]


def degree_allowed(model: ModelConfig, training: TrainingConfig, parallel: ParallelConfig, degree: str, value: int) -> bool:
    """Whether the model and the sequence allow ``tp``, ``pp``, ``cp`` or ``ep`` to be ``value``, the other degrees as they are."""
    changed = _changed(parallel, degree, value)
    if degree == "pp":
        # A pipeline of one stage has no virtual stages.
        return value >= min(parallel.vpp, 2) and split_layers(model.num_hidden_layers, value * parallel.vpp) is not None
    divides = all(share.size % value == 0 for share in shares(model) if share.degree in _bound_to(changed, degree))
    return divides and training.seq_len % _sequence_unit(changed) == 0


def _changed(parallel: ParallelConfig, degree: str, value: int) -> ParallelConfig:
    """The layout with another degree; an etp equal to tp goes along with it."""
    together = {"etp": value} if degree == "tp" and parallel.etp == parallel.tp > 1 else {}
    return parallel.model_copy(update={degree: value, **together})


def _bound_to(parallel: ParallelConfig, degree: str) -> tuple[str, ...]:
    return ("tp", "etp") if degree == "tp" and parallel.etp == parallel.tp else (degree,)


def _share_problems(model: ModelConfig, parallel: ParallelConfig, degree: str, fits: Fits) -> list[Problem]:
    value = getattr(parallel, degree)
    broken = [share for share in shares(model) if share.degree == degree and share.size % value]
    if not broken:
        return []
    bound = _bound_to(parallel, degree)
    common = math.gcd(*(share.size for share in shares(model) if share.degree in bound))
    # etp is either 1 or tp, so no other divisor of the width is a way out.
    candidates = [1] if degree == "etp" else divisors(common)
    values = nearest(candidates, value, lambda other: fits(_changed(parallel, degree, other))) or nearest(candidates, value)
    what = f"{degree} {value} does not divide {', '.join(f'{share.name} {share.size}' for share in broken)}"
    fix = offer(f"parallel.{degree}", values, "and parallel.etp the same, or 1" if len(bound) > 1 else "")
    if any(share.name == "num_key_value_heads" and value % share.size == 0 for share in broken):
        fix = (*fix, "(Megatron-core alone would copy key and value heads over more ranks; TorchTitan does not, so no backend here does)")
    return [Problem(f"parallel.{degree}", what, fix)]


def _no_experts(model: ModelConfig, parallel: ParallelConfig) -> list[Problem]:
    if model.moe is not None:
        return []
    return [
        Problem(f"parallel.{degree}", f"{degree} {value} has no effect: {model.name} has no experts", (f"parallel.{degree}=1",))
        for degree, value in (("ep", parallel.ep), ("etp", parallel.etp))
        if value > 1
    ]


def _layer_problems(model: ModelConfig, parallel: ParallelConfig, fits: Fits) -> list[Problem]:
    layers, pp, vpp = model.num_hidden_layers, parallel.pp, parallel.vpp
    if split_layers(layers, pp * vpp) is not None:
        return []
    stages = f"pp {pp} x vpp {vpp} = {pp * vpp} stages"
    if layers < pp * vpp:
        what = f"num_hidden_layers {layers} is fewer than {stages}"
    else:
        what = f"num_hidden_layers {layers} is not divisible by {stages}, nor is {layers} + 2 (one layer fewer on the first and the last)"

    legal = [other for other in range(min(vpp, 2), layers + 1) if split_layers(layers, other * vpp) is not None]
    fix = offer("parallel.pp", nearest(legal, pp, lambda other: fits(_changed(parallel, "pp", other))) or nearest(legal, pp))
    if vpp > 1:
        fix += offer("parallel.vpp", nearest(range(2, layers + 1), vpp, lambda other: split_layers(layers, pp * other) is not None))
    return [Problem("parallel.pp", what, fix)]


def _sequence_unit(parallel: ParallelConfig) -> int:
    """What seq_len has to be a multiple of: tp ranks take equal parts of it, and each of cp ranks one part from either end."""
    return (parallel.tp if parallel.sequence_parallel else 1) * (2 * parallel.cp if parallel.cp > 1 else 1)


def _sequence_problems(model: ModelConfig, training: TrainingConfig, parallel: ParallelConfig) -> list[Problem]:
    seq_len, longest, unit = training.seq_len, model.max_position_embeddings, _sequence_unit(parallel)
    problems = []
    if seq_len % unit:
        factors = [f"tp {parallel.tp} (sequence_parallel)"] if parallel.sequence_parallel and parallel.tp > 1 else []
        factors += [f"2 x cp {parallel.cp}"] if parallel.cp > 1 else []
        what = f"seq_len {seq_len} is not divisible by {' x '.join(factors)} = {unit}"
        fix = offer("training.seq_len", nearest_multiples(unit, seq_len, at_most=longest))
        without = _sequence_unit(parallel.model_copy(update={"sequence_parallel": False}))
        if seq_len % without == 0:
            fix += ("parallel.sequence_parallel=false (same loss curve, more memory)",)
        problems.append(Problem("training.seq_len", what, fix))
    if seq_len > longest:
        what = f"seq_len {seq_len} is longer than max_position_embeddings {longest} of {model.name}"
        problems.append(Problem("training.seq_len", what, offer("training.seq_len", [longest // unit * unit] if longest >= unit else [])))
    return problems
