"""The nearest legal name to what was typed."""

import difflib
import re
from collections.abc import Container, Iterable, Sequence
from itertools import takewhile

FOREIGN_NAMES = {
    "mock_data": "data=mock",
    "train_iters": "training.steps",
    "max_steps": "training.steps",
    "seq_length": "training.seq_len",
    "sequence_length": "training.seq_len",
    "batch_size": "training.global_batch_size",
    "local_batch_size": "training.micro_batch_size",
    "learning_rate": "optimizer.lr",
    "lr_warmup_iters": "optimizer.warmup_steps",
    "adam_beta1": "optimizer.beta1",
    "adam_beta2": "optimizer.beta2",
    "clip_grad": "optimizer.clip_grad_norm",
    "max_norm": "optimizer.clip_grad_norm",
    "tensor_model_parallel_size": "parallel.tp",
    "tensor_parallel_degree": "parallel.tp",
    "pipeline_model_parallel_size": "parallel.pp",
    "pipeline_parallel_degree": "parallel.pp",
    "context_parallel_size": "parallel.cp",
    "context_parallel_degree": "parallel.cp",
    "expert_model_parallel_size": "parallel.ep",
    "expert_parallel_degree": "parallel.ep",
    "data_parallel_shard_degree": "parallel.dp_shard",
    "data_parallel_replicate_degree": "parallel.dp_replicate",
    "nnodes": "cluster.nodes",
    "nproc_per_node": "cluster.devices_per_node",
    "gpus_per_node": "cluster.devices_per_node",
    "save_interval": "checkpoint.every",
    "eval_interval": "training.eval_every",
    "log_interval": "logging.every",
    "num_layers": "model.num_hidden_layers",
    "ffn_hidden_size": "model.intermediate_size",
    "num_query_groups": "model.num_key_value_heads",
    "dtype": "precision",
}
"""Names that other launchers use for what we have under another name."""


MARGIN = 0.1
"""How much less like the word than the best candidate the others may be."""


def nearest(word: str, candidates: Iterable[str], *, count: int = 3, cutoff: float = 0.6) -> list[str]:
    """The candidates about as like ``word`` as the best of them, best first; case and the sign between words do not count."""
    ratios = {name: difflib.SequenceMatcher(None, _plain(name), _plain(word)).ratio() for name in candidates}
    least = max(cutoff, max(ratios.values(), default=0.0) - MARGIN)
    near = [name for name in ratios if ratios[name] >= least]
    return sorted(near, key=lambda name: (-ratios[name], -_shared_start(name, word), name))[:count]


def _plain(word: str) -> str:
    return re.sub(r"[-. ]", "_", word.lower())


def _shared_start(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def nearest_keys(key: str, leaves: Iterable[str], groups: Iterable[str] = ()) -> list[str]:
    """Legal keys that ``key`` may have meant: by another launcher's name, in the section that it names, or by likeness."""
    leaves = list(leaves)
    section, _, last = key.rpartition(".")
    siblings = {leaf.rpartition(".")[2]: leaf for leaf in leaves if leaf.rpartition(".")[0] == section}
    same_last = [leaf for leaf in leaves if leaf.rpartition(".")[2] == last]
    found = [siblings[name] for name in nearest(last, siblings)] if section else nearest(key, groups)
    foreign = [FOREIGN_NAMES[name] for name in nearest(last, FOREIGN_NAMES, count=1, cutoff=1.0 if found else 0.8)]
    found = found or same_last or nearest(key, leaves, count=2, cutoff=0.75) or _by_last_word(last, leaves)
    return list(dict.fromkeys([*foreign, *found]))[:3]


def _by_last_word(last: str, leaves: list[str]) -> list[str]:
    by_last: dict[str, str] = {}
    for leaf in leaves:
        by_last.setdefault(leaf.rpartition(".")[2], leaf)
    return [by_last[word] for word in nearest(last, by_last, count=2)]


def where_to_look(key: str, known: Container[str]) -> tuple[str, ...]:
    """How to see the legal keys where none is near: those of the section that ``key`` names, or all."""
    section = key.rpartition(".")[0]
    if section and section in known:
        return (f"`primus --cfg job --package {section}` shows the keys of {section}",)
    return ("`primus --cfg job` shows every key",)


def one_of(names: Sequence[str], what: str) -> tuple[str, ...]:
    """All ``names`` while they fit on a line."""
    if len(names) == 1:
        return (f"there is only {names[0]}",)
    return (f"one of {', '.join(names)}" if len(names) <= 12 else f"`primus --help` shows the {len(names)} {what}",)


def did_you_mean(names: Iterable[str]) -> tuple[str, ...]:
    """A line of advice, or none when there is nothing near."""
    names = list(names)
    return (f"did you mean {' or '.join(names)}?",) if names else ()
