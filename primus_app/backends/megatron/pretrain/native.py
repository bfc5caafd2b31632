"""backend.native under backend.runner=pretrain: arguments of Megatron-LM, added to those that our own keys come to."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from primus_app.backends.megatron.native.given import as_field, facts_by_name, field_of, option_of
from primus_app.backends.megatron.native.options import OPTIONS
from primus_app.backends.megatron.native.owned import OWNED
from primus_app.backends.megatron.native.refused import REFUSED
from primus_app.backends.megatron.native.rules import RULES
from primus_app.backends.megatron.pretrain.recorded_arguments import Fact
from primus_app.backends.megatron.pretrain.row import words
from primus_app.backends.megatron.versions import tested_version
from primus_app.backends.native.check import check_options, flatten
from primus_app.backends.native.options import Option, Options, Rule
from primus_app.backends.native.rules import needs
from primus_app.config.errors import Problem
from primus_app.config.schema import Config
from primus_app.plan.mesh import Mesh

TP_OVERLAP = ("accelerator", "tensor", "divided_sequence")
TP_OVERLAPPING = (*TP_OVERLAP, "tp_overlap")

TRAINER: dict[str, tuple[str, tuple[str, ...]]] = {
    "manual_gc": ("Whether Python's garbage is collected at fixed steps only.", ()),
    "manual_gc_interval": ("Steps between two collections; 0 collects at evaluations alone.", ("from_0", "manual_gc")),
    "empty_unused_memory_level": ("How often unused memory goes back to the device: 0 never, 1 or 2 within each step.", ("accelerator",)),
    "train_sync_interval": ("Steps after which the device is waited for.", ("accelerator", "above_0")),
    "check_weight_hash_across_dp_replicas_interval": ("Steps after which replicas' weights are compared.", ("above_0",)),
    "distributed_timeout_minutes": ("Minutes that a collective may take.", ("above_0",)),
    "nccl_communicator_config_path": ("A file with NCCL's settings for each group of ranks.", ("accelerator",)),
    "high_priority_stream_groups": ("Groups of ranks whose communication goes first.", ("accelerator",)),
    "use_sharp": ("Whether the network's switches sum.", ("accelerator",)),
    "tp_comm_overlap": ("Whether communication over tp overlaps with matrix products, by Transformer Engine.", TP_OVERLAP),
    "tp_comm_overlap_cfg": ("A file with its settings.", TP_OVERLAPPING),
    "tp_comm_bootstrap_backend": ("What its memory is registered through.", TP_OVERLAPPING),
    "tp_comm_overlap_rs_dgrad": ("Whether reduce-scatter overlaps with gradients of inputs.", TP_OVERLAPPING),
    "disable_tp_comm_overlap_ag": ("Whether all-gather does not overlap.", TP_OVERLAPPING),
    "disable_tp_comm_overlap_rs": ("Whether reduce-scatter does not overlap.", TP_OVERLAPPING),
    "disable_tp_comm_bulk_dgrad": ("Whether all-gather does not overlap with gradients of inputs.", TP_OVERLAPPING),
    "disable_tp_comm_bulk_wgrad": ("Whether reduce-scatter does not overlap with gradients of weights.", TP_OVERLAPPING),
    "disable_tp_comm_split_ag": ("Whether all-gather is not divided to overlap.", TP_OVERLAPPING),
    "disable_tp_comm_split_rs": ("Whether reduce-scatter is not divided to overlap.", TP_OVERLAPPING),
}
"""Arguments that its trainer alone carries out: what they do, and their rules."""

TRAINER_RULES: dict[str, Rule] = {
    "manual_gc": needs(
        lambda case: bool(case.also("manual_gc", False)), "has no effect without manual_gc", "add backend.native.manual_gc=true"
    ),
    "tp_overlap": needs(
        lambda case: bool(case.also("transformer.tp_comm_overlap", False)),
        "has no effect without tp_comm_overlap",
        "add backend.native.tp_comm_overlap=true",
    ),
}

NOT_KNOWN = "is not among the arguments that are known to change nothing but how a run is carried out"
ALREADY = "is said by this program, as weights, samples, records and the loss curve need it"


def check_native_arguments(config: Config, mesh: Mesh | None, said: Mapping[str, tuple[str, ...]]) -> list[Problem]:
    """Every argument of backend.native that is unknown, of the wrong type, a key of ours, or without effect; all at once.

    ``said`` are the names of the arguments that this program gives, with our keys that they come from.
    """
    options = arguments_of(tested_version(config.backend), tuple(sorted(said.items())))
    problems = check_options(options, config, mesh)
    wrong = {problem.where for problem in problems}
    return [*problems, *(problem for problem in _idle_flags(config, options, said) if problem.where not in wrong)]


def added_arguments(config: Config, said: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Those of backend.native that this program does not say already, with their words."""
    if config.backend.runner != "pretrain":
        return []
    version, given = tested_version(config.backend), flatten(config.backend.native)
    return [(option_of(name, version), _words(value)) for name, value in given.items() if name not in said]


@cache
def arguments_of(version: str, said: tuple[tuple[str, tuple[str, ...]], ...]) -> Options:
    """The tables of the arguments that the trainer of ``version`` takes."""
    facts, keys = facts_by_name(version), dict(said)
    passed = {name: option for name, fact in facts.items() if (option := _passed(name, fact)) is not None}
    owned = {name: owner for name, fact in facts.items() if name not in passed and (owner := _owner(name, fact, keys))}
    rest = {name: fact for name, fact in facts.items() if name not in passed and name not in owned}
    return Options(
        engine=f"Megatron-LM {'.'.join(version.split('.')[:2])}",
        passed=passed,
        owned=owned,
        refused={name: _reason(name, fact, keys) for name, fact in rest.items()},
        rules=RULES | TRAINER_RULES,
        whole="docs/native-options.md lists Megatron-LM's arguments",
        known_as=lambda name, value: _known_as(facts[name], name, value),
    )


def _known_as(fact: Fact, name: str, value: Any) -> tuple[str, Any]:
    field, meant = as_field(fact, value)
    return (field, meant) if field is not None else (name, value)


def _passed(name: str, fact: Fact) -> Option | None:
    if name in TRAINER:
        return Option(_type(fact), *TRAINER[name])
    each = OPTIONS.get(field_of(fact) or "")
    if each is None:
        return None
    meaning = f"true is no to this: {each.help}" if fact.action == "store_false" else each.help
    return Option(_type(fact), meaning, each.rules)


def _type(fact: Fact) -> Any:
    if fact.is_flag:
        return bool
    kind: Any = {"int": int, "float": float}.get(fact.type or "str", str)
    if fact.choices is not None:
        kind = Literal[tuple(kind(choice) for choice in fact.choices)]
    return list[kind] if fact.nargs in ("*", "+") else kind


def _owner(name: str, fact: Fact, keys: Mapping[str, tuple[str, ...]]) -> str | None:
    if name in keys:
        return " and ".join(keys[name]) or None
    return OWNED.get(field_of(fact) or "")


def _reason(name: str, fact: Fact, keys: Mapping[str, tuple[str, ...]]) -> str:
    return ALREADY if name in keys else REFUSED.get(field_of(fact) or "", NOT_KNOWN)


def _idle_flags(config: Config, options: Options, said: Mapping[str, Any]) -> Iterator[Problem]:
    """A flag that is false is left out, and so must be one that would be there."""
    for name, value in flatten(config.backend.native).items():
        if value is False and name in options.passed and name not in said:
            yield Problem(f"backend.native.{name}", "has no effect: the flag is left out anyway", ("leave it out",))


def _words(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else words(value)
