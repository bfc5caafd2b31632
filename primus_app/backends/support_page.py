"""docs/support.md, made from the engines' own checks: which model, layout, precision and option each of them trains."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from primus_app.backends.base import load_backend
from primus_app.config.compose import Request, compose, groups, hydra_ready
from primus_app.config.errors import Problem
from primus_app.config.kinds import choices, schema_fields
from primus_app.config.location import conf_dir
from primus_app.config.reference import table
from primus_app.config.schema import Config
from primus_app.config.validate import validate
from primus_app.plan.plan import make_plan

INTRODUCTION = """\
# What each engine trains

Made by `./scripts/docs` from the engines' own checks, the ones that are asked before a run starts; a test keeps it in step. Where an engine
is refused, the reason is the one that the program gives, which adds what to do. Settings are tried on a dense model (`llama_tiny`), on one
with experts (`qwen3_moe_tiny`), and on one with latent attention, experts and a selection bias (`deepseek_v3_tiny`).
"""
DEVICES = 8
"""On one node, in every layout of the page: enough for two degrees of 2, and one of 4."""

DENSE, EXPERTS, LATENT = "llama_tiny", "qwen3_moe_tiny", "deepseek_v3_tiny"
EVERY_KIND = (DENSE, EXPERTS, LATENT)

LAYOUTS: tuple[tuple[str, ...], ...] = (
    ("parallel.dp_shard=8",),
    ("parallel.dp_replicate=8",),
    ("parallel.dp_replicate=2", "parallel.dp_shard=4"),
    ("parallel.tp=2",),
    ("parallel.tp=2", "parallel.sequence_parallel=false"),
    ("parallel.pp=2",),
    ("parallel.pp=2", "parallel.schedule=gpipe"),
    ("parallel.pp=2", "parallel.vpp=2", "parallel.schedule=interleaved"),
    ("parallel.pp=2", "parallel.schedule=zero_bubble"),
    ("parallel.cp=2",),
    ("parallel.tp=2", "parallel.pp=2"),
    ("parallel.tp=2", "parallel.pp=2", "parallel.cp=2"),
    ("parallel.dp_shard=8", "parallel.distributed_optimizer=true"),
    ("parallel.dp_shard=8", "parallel.distributed_optimizer=false"),
    ("parallel.dp_replicate=8", "parallel.distributed_optimizer=false"),
)
"""For every kind of model; what is left of the devices is dp_shard, where nothing else is said."""

EXPERT_LAYOUTS: tuple[tuple[str, ...], ...] = (
    ("parallel.ep=2",),
    ("parallel.ep=8",),
    ("parallel.tp=2", "parallel.etp=2"),
    ("parallel.ep=2", "parallel.tp=2"),
    ("parallel.ep=2", "parallel.tp=2", "parallel.etp=2"),
    ("parallel.ep=2", "parallel.pp=2"),
    ("parallel.ep=2", "parallel.cp=2"),
    ("parallel.dp_replicate=2", "parallel.ep=2"),
)
OPTIONS: tuple[tuple[str, ...], ...] = (
    ("training.recompute=selective",),
    ("training.recompute=full",),
    ("training.document_mask=true",),
    ("training.deterministic=true",),
    ("optimizer.schedule=linear",),
    ("optimizer.schedule=constant",),
    ("optimizer.schedule=wsd",),
    ("optimizer.clip_grad_norm=0",),
    ("checkpoint.async=true",),
    ("checkpoint.keep=1",),
    ("checkpoint.every=0",),
    ("model.init=native",),
    ("model.init=native", "model.init_std=0.01"),
    ("backend.native.training.gc_freq=100",),
    ("backend.runner=pretrain",),
)
DENSE_OPTIONS = (("model.tie_word_embeddings=true",), ("model.tie_word_embeddings=true", "parallel.pp=2"))
BALANCING = (("training.load_balancing=expert_bias",), ("training.load_balancing=aux_loss",))
"""Options of the models with experts, the first of those with a selection bias alone."""


@dataclass(frozen=True)
class Tried:
    """One request, and what each engine has against it."""

    typed: tuple[str, ...]
    models: str
    refused: tuple[tuple[str, ...], ...]


def engines() -> list[str]:
    return choices(schema_fields()["backend.name"])


def support_page() -> str:
    """The whole page as Markdown."""
    return "\n".join([INTRODUCTION, *_tables()]).rstrip() + "\n"


def _tables() -> Iterator[str]:
    yield "## Models\n\nOn one device, as `model=<name>` has them.\n"
    yield table(("family", "models", *engines()), _models())
    yield f"## Layouts\n\nOn {DEVICES} devices; `parallel.dp_shard` takes what is left, where nothing else is said.\n"
    yield _table(_tried(LAYOUTS, EVERY_KIND) + _tried(EXPERT_LAYOUTS, (EXPERTS, LATENT)))
    yield "## Precision\n"
    yield _table(_tried([(f"precision={name}",) for name in groups()["precision"]], EVERY_KIND))
    yield "## Options\n"
    tried = _tried(OPTIONS, EVERY_KIND) + _tried(DENSE_OPTIONS, (DENSE,))
    yield _table(tried + _tried(BALANCING[:1], (LATENT,)) + _tried(BALANCING[1:], (EXPERTS, LATENT)))


def _models() -> Iterator[tuple[str, ...]]:
    """A line for each family, or for each part of it that has answers of its own."""
    answers: dict[tuple[str, tuple[tuple[str, ...], ...]], list[str]] = {}
    for name in groups()["model"]:
        if name == "hf":
            continue
        config = _config((f"model={name}",))
        answers.setdefault((config.model.family, refusals(config)), []).append(name)
    for (family, refused), names in sorted(answers.items()):
        yield family, ", ".join(f"`{name}`" for name in names), *(_answer(each) for each in refused)


@cache
def _defaults() -> dict[str, Any]:
    with hydra_ready(None):
        return compose(Request(()))


def _config(typed: Sequence[str]) -> Config:
    """What the settings compose to, without asking Hydra for each of them."""
    data = deepcopy(_defaults())
    for text in typed:
        key, _, value = text.partition("=")
        section, _, last = key.rpartition(".")
        if section:
            _section(data, section)[last] = yaml.safe_load(value)
        else:
            _section(data, key).update(_option(key, value))
    config = validate(data)
    if not isinstance(config, Config):
        raise RuntimeError(f"{' '.join(typed)}: {config[0]}")
    return config


def _section(data: dict[str, Any], dotted: str) -> dict[str, Any]:
    for name in dotted.split("."):
        data = data.setdefault(name, {})
    return data


def _option(group: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def refusals(config: Config) -> tuple[tuple[str, ...], ...]:
    """What each engine has against ``config``, in words.

    Raises RuntimeError where the plan itself refuses it, on any engine.
    """
    found = []
    for name in engines():
        other = config.model_copy(update={"backend": config.backend.model_copy(update={"name": name})})
        plan = make_plan(other, local_devices=DEVICES)
        if plan.problems:
            raise RuntimeError(f"{other.model.name} with backend={name}: {plan.problems[0]}")
        found.append(tuple(_words(problem) for problem in load_backend(name).check(other, plan.mesh)))
    return tuple(found)


def _words(problem: Problem) -> str:
    return f"`{problem.where}`: {problem.what.rstrip('.')}"


def _tried(requests: Iterable[tuple[str, ...]], models: Sequence[str]) -> list[Tried]:
    """Every request with every model; those with the same answers are one line."""
    tried = []
    for typed in requests:
        answers: dict[tuple[tuple[str, ...], ...], list[str]] = {}
        for model in models:
            answers.setdefault(refusals(_config(_whole(typed, model))), []).append(f"`{model}`")
        tried += [Tried(typed, "all" if len(names) == len(EVERY_KIND) else ", ".join(names), each) for each, names in answers.items()]
    return tried


def _whole(typed: tuple[str, ...], model: str) -> tuple[str, ...]:
    """The request with a model, the devices and sizes that every layout divides."""
    given = {text.partition("=")[0] for text in typed}
    common = ("training.seq_len=512", "training.global_batch_size=64", "training.micro_batch_size=1", "cluster.devices_per_node=8")
    shard = ("parallel.dp_shard=auto",) if not given & {"parallel.dp_shard", "parallel.dp_replicate"} else ()
    left = ("parallel.dp_shard=auto",) if "parallel.dp_replicate" in given and len(typed) > 1 and "parallel.dp_shard" not in given else ()
    return (f"model={model}", *common, "cluster.nodes=1", *shard, *left, *typed)


def _table(tried: Iterable[Tried]) -> str:
    rows = [(f"`{' '.join(each.typed)}`", each.models, *(_answer(refused) for refused in each.refused)) for each in tried]
    return table(("setting", "models", *engines()), rows)


def _answer(refused: tuple[str, ...]) -> str:
    return "; ".join(refused) if refused else "yes"
