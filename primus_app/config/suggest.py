"""The nearest legal name to what was typed."""

import difflib
from collections.abc import Iterable

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


def nearest(word: str, candidates: Iterable[str], *, count: int = 3, cutoff: float = 0.6) -> list[str]:
    """The candidates most like ``word``, best first."""
    return difflib.get_close_matches(word, list(candidates), n=count, cutoff=cutoff)


def nearest_keys(key: str, keys: Iterable[str]) -> list[str]:
    """Legal dotted keys that ``key`` may have meant: by another launcher's name, by likeness, or by the last word alone."""
    keys = list(keys)
    last = key.rpartition(".")[2]
    foreign = nearest(last, FOREIGN_NAMES, count=1, cutoff=0.8)
    same_last = [known for known in keys if known.rpartition(".")[2] == last]
    found = same_last or nearest(key, keys, count=2)
    if not found:
        by_last = {known.rpartition(".")[2]: known for known in keys}
        found = [by_last[word] for word in nearest(last, by_last, count=2)]
    return list(dict.fromkeys([*(FOREIGN_NAMES[name] for name in foreign), *found]))[:3]


def did_you_mean(names: Iterable[str]) -> tuple[str, ...]:
    """A line of advice, or none when there is nothing near."""
    names = list(names)
    return (f"did you mean {' or '.join(names)}?",) if names else ()
