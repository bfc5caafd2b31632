"""The whole table, the arguments that come out of it, and the keys that have none."""

from collections.abc import Sequence

from primus_app.backends.megatron.native.given import name_of
from primus_app.backends.megatron.pretrain.model_rows import MODEL_ROWS
from primus_app.backends.megatron.pretrain.native import added_arguments
from primus_app.backends.megatron.pretrain.row import Source, words
from primus_app.backends.megatron.pretrain.run_rows import RUN_ROWS

ROWS = (*MODEL_ROWS, *RUN_ROWS)

Argument = tuple[str, list[str]]
"""An option string and what stands after it."""

REFUSED = "refused on this backend where it differs from what is left out"
OWN = "what this program does around the training"

YARN = {
    "model.rope_scaling.original_max_position_embeddings": 4096,
    "model.rope_scaling.beta_fast": 32.0,
    "model.rope_scaling.beta_slow": 1.0,
}
"""Of latent attention's stretching of positions: what no argument says, and the value that Megatron has for it."""

WITHOUT_ARGUMENT: dict[str, str] = {
    "model.name": "a name",
    "model.family": "a name",
    "model.path": "where the model's numbers were read from",
    "model.init": "seeded weights go in once the model is built",
    "model.attention_sinks": REFUSED,
    "model.swiglu_limit": REFUSED,
    "model.moe.expert_bias_terms": REFUSED,
    "model.rope_scaling.low_freq_factor": REFUSED,
    "model.rope_scaling.high_freq_factor": REFUSED,
    "model.rope_scaling.truncate": REFUSED,
    **dict.fromkeys(YARN, "a field of the model's configuration alone: set where this program hosts the trainer, else Megatron's default"),
    "training.stage": "there is only pre-training",
    "precision.name": "the name of a set",
    "precision.params": "always float32",
    "precision.optimizer_states": "always float32",
    "parallel.name": "the name of a layout",
    "backend.name": OWN,
    "backend.runner": OWN,
    "backend.megatron_path": OWN,
    "backend.native": "adds arguments of its own names",
    "backend.patches": OWN,
    "data.text_key": OWN,
    "data.cache_dir": OWN,
    **dict.fromkeys(("data.prompt_key", "data.response_key", "data.messages_key", "data.chat_template"), OWN),
    **dict.fromkeys(("data.packing", "data.too_long"), OWN),
    "checkpoint.keep": OWN,
    "checkpoint.load": OWN,
    "checkpoint.load_digest": OWN,
    "logging.tensorboard": OWN,
}
"""Keys that no argument says, and why; whole sections by their name with a dot at the end."""

WITHOUT_ARGUMENT_SECTIONS = ("cluster.", "hardware.", "plan.", "work_group", "user_name", "exp_name", "workspace")
"""Keys and beginnings of keys about the place, which the ranks are started with."""


def arguments(source: Source) -> list[Argument]:
    """Every argument with its words, in the order of the table; those of backend.native after it."""
    found = []
    for line in ROWS:
        value = line.convert(source)
        if value is not None and value is not False:
            found.append((line.argument, words(value)))
    return [*found, *added_arguments(source.config, said_names())]


def said_names() -> dict[str, tuple[str, ...]]:
    """The arguments of the table by their names in backend.native, with the keys that they come from."""
    return {name_of(line.argument): line.keys for line in ROWS}


def as_argv(found: Sequence[Argument]) -> list[str]:
    """The same as one list of words."""
    return [word for name, values in found for word in (name, *values)]
