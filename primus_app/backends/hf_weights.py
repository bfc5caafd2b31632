"""The weights of a Hugging Face folder by the headers of its files: whether they are those of its model, and what names them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from primus_app.backends.hf_names import hf_buffers, hf_parameters
from primus_app.backends.safetensors_files import StoredTensor, sampled_digest, stored_tensors
from primus_app.config.errors import Problem, UserError
from primus_app.config.huggingface import load_huggingface
from primus_app.config.schema import ModelConfig

READABLE = ("F32", "BF16", "F16")
SHOWN = 4


def model_of(folder: Path, where: str) -> ModelConfig:
    """What its config.json describes. Raises UserError at ``where``."""
    try:
        return ModelConfig.model_validate(load_huggingface(str(folder)))
    except UserError as error:
        raise UserError([Problem(where, f"{each.where}: {each.what}", each.fix) for each in error.problems]) from None


def find_tensors(folder: Path, model: ModelConfig, where: str) -> dict[str, StoredTensor]:
    """All tensors in the folder's files. Raises UserError at ``where`` with everything by which they are not ``model``'s."""
    tensors = stored_tensors(folder, where)
    if problems := list(_wrong_tensors(tensors, model, folder, where)):
        raise UserError(problems)
    return tensors


def identity(tensors: Mapping[str, StoredTensor]) -> str:
    """What names their content, wherever they lie."""
    return f"safetensors:{sampled_digest(tensors.values())}"


def _wrong_tensors(tensors: dict[str, StoredTensor], model: ModelConfig, folder: Path, where: str) -> Iterator[Problem]:
    wanted = {weight.name: weight.shape for weight in (*hf_parameters(model), *hf_buffers(model))}
    missing = [name for name in wanted if name not in tensors]
    surplus = [name for name in tensors if name not in wanted and not _passed_over(name, model, folder)]
    shapes = [
        f"{name} is {tensors[name].shape}, the model's {shape}"
        for name, shape in wanted.items()
        if name in tensors and tensors[name].shape != shape
    ]
    dtypes = [f"{name} is {tensors[name].dtype}" for name in wanted if name in tensors and tensors[name].dtype not in READABLE]
    for what, found in (("lacks", missing), ("holds tensors that the model has not:", surplus), ("has other shapes:", shapes)):
        if found:
            yield Problem(where, f"{folder} {what} {_some(found)}", ("give the folder of a model of this architecture",))
    if dtypes:
        yield Problem(where, f"{folder}: {_some(dtypes)}", (f"weights are read as {', '.join(READABLE)}",))


def _passed_over(name: str, model: ModelConfig, folder: Path) -> bool:
    """What transformers passes over too: old files' frequencies, a shared output layer stored again, layers for multi-token prediction."""
    if name.endswith("rotary_emb.inv_freq"):
        return True
    if name == "lm_head.weight":
        return model.tie_word_embeddings
    layer = name.removeprefix("model.layers.").partition(".")[0]
    if model.family != "deepseek_v3" or not layer.isdecimal():
        return False
    extra = json.loads((folder / "config.json").read_text()).get("num_nextn_predict_layers") or 0
    return model.num_hidden_layers <= int(layer) < model.num_hidden_layers + extra


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
