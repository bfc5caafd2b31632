"""The weights of a Hugging Face folder by the headers of its files: whether they are those of its model, and what names them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from primus_app.backends.disagreement import disagreement, shapes_of, some
from primus_app.backends.safetensors_files import StoredTensor, sampled_digest, stored_tensors
from primus_app.config.errors import Problem, UserError
from primus_app.config.huggingface import load_huggingface
from primus_app.config.schema import ModelConfig

READABLE = ("F32", "BF16", "F16")


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
    wanted = shapes_of(model)
    there = {name: tensor.shape for name, tensor in tensors.items() if name in wanted or not _passed_over(name, model, folder)}
    dtypes = [f"{name} is {tensors[name].dtype}" for name in wanted if name in tensors and tensors[name].dtype not in READABLE]
    if what := disagreement(folder, there, wanted):
        yield Problem(where, what, ("bring back the config.json that these weights were saved with", "or give another folder"))
    if dtypes:
        yield Problem(where, f"{folder}: {some(dtypes)}", (f"weights are read as {', '.join(READABLE)}",))


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
