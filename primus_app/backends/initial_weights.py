"""checkpoint.load before launch: whether the weights are there, whole and of this architecture, and what names their content."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from primus_app.backends.hf_names import hf_buffers, hf_parameters
from primus_app.backends.safetensors_files import StoredTensor, has_weights, sampled_digest, stored_tensors
from primus_app.config.errors import Problem, UserError
from primus_app.config.huggingface import load_huggingface
from primus_app.config.schema import Config, ModelConfig
from primus_app.config.typed import typed
from primus_app.run.checkpoints import newest_checkpoint
from primus_app.run.directory import run_directory
from primus_app.run.saved_step import find_saved_step, is_run_or_step, run_of
from primus_app.run.snapshot import read_config
from primus_app.run.what import differences, what_of

LOAD = "checkpoint.load"
DIGEST = "checkpoint.load_digest"
NOT_ARCHITECTURE = ("model.name", "model.init", "model.init_std")
"""Keys of *what* in ``model`` that weights do not have to agree with."""

READABLE = ("F32", "BF16", "F16")
SHOWN = 4


@dataclass(frozen=True)
class InitialWeights:
    """Weights found good: the folder that ranks read, and what names its content."""

    folder: Path
    digest: str


def check_load(config: Config) -> list[Problem]:
    """Everything that speaks against starting from checkpoint.load; empty where nothing is to be loaded, or not any more."""
    checkpoint = config.checkpoint
    if checkpoint.load is None:
        fix = ("leave it out, or give checkpoint.load too",)
        return [Problem(DIGEST, "has no effect without checkpoint.load", fix)] if checkpoint.load_digest else []
    problems = []
    if config.model.init == "native":
        what = "native has no effect with checkpoint.load, whose weights take the place of the first ones"
        problems.append(Problem("model.init", what, ("leave it out",)))
    try:
        resolve_load(config)
    except UserError as error:
        problems += error.problems
    return problems


def resolve_load(config: Config) -> Config:
    """``config`` with checkpoint.load as the folder that is read and load_digest filled.

    A run that has checkpoints of its own goes on from them: what it has started from may then be gone.
    Raises:
        UserError: with everything that speaks against these weights.
    """
    if config.checkpoint.load is None:
        return config
    begun = _begun_from(config)
    if begun is None:
        found = find_weights(Path(config.checkpoint.load).expanduser().absolute(), config)
    elif newest_checkpoint(run_directory(config)) is not None:
        found = begun
    else:
        found = find_weights(begun.folder, config)
    expected = config.checkpoint.load_digest
    if expected not in (None, found.digest):
        what = f"{expected!r} is expected, and the weights of {found.folder} are {found.digest!r}"
        raise UserError(Problem(DIGEST, what, ("bring the expected weights back, or leave it out",)))
    checkpoint = config.checkpoint.model_copy(update={"load": str(found.folder), "load_digest": found.digest})
    return config.model_copy(update={"checkpoint": checkpoint})


def find_weights(path: Path, config: Config) -> InitialWeights:
    """The weights at ``path``, a run directory, a step folder or a Hugging Face folder, for ``config``'s model.

    Raises:
        UserError: with everything that speaks against them.
    """
    if is_run_or_step(path):
        step = find_saved_step(path, where=LOAD)
        _require_architecture(config, step.config.model, step.run.path, f"take the model as {step.run.config_file} has it")
        return InitialWeights(step.folder, step.identity)
    if not has_weights(path) and not (path / "config.json").exists():
        raise UserError(Problem(LOAD, _no_weights(path), _advice(path)))
    _require_architecture(config, _huggingface_model(path), path, f"model=hf {typed('model.path', path)} takes the model from there")
    tensors = stored_tensors(path, LOAD)
    if problems := list(_wrong_tensors(tensors, config.model, path)):
        raise UserError(problems)
    return InitialWeights(path, f"safetensors:{sampled_digest(tensors.values())}")


def _begun_from(config: Config) -> InitialWeights | None:
    """What the run has started from, where it has begun and is given the same place again."""
    run = None if config.exp_name is None else run_directory(config)
    if run is None or not run.run_file.exists() or not run.config_file.exists():
        return None
    begun = read_config(run.config_file).checkpoint
    if begun.load is None or begun.load_digest is None or config.checkpoint.load is None:
        return None
    folder, given = Path(begun.load), Path(config.checkpoint.load).expanduser().absolute()
    return InitialWeights(folder, begun.load_digest) if given in (folder, run_of(folder).path) else None


def _huggingface_model(path: Path) -> ModelConfig:
    try:
        return ModelConfig.model_validate(load_huggingface(str(path)))
    except UserError as error:
        raise UserError([Problem(LOAD, f"{each.where}: {each.what}", each.fix) for each in error.problems]) from None


def _require_architecture(config: Config, stored: ModelConfig, place: Path, fix: str) -> None:
    wanted, found = (_architecture(config, model) for model in (config.model, stored))
    if different := differences(found, wanted):
        problems = [Problem(item.key, f"{item.new!r} here, {item.old!r} in {place}") for item in different]
        raise UserError([*problems, Problem(LOAD, f"{place} holds the weights of another architecture", (fix,))])


def _architecture(config: Config, model: ModelConfig) -> dict[str, object]:
    what = what_of(config.model_copy(update={"model": model}))
    return {key: value for key, value in what.items() if key.startswith("model.") and key not in NOT_ARCHITECTURE}


def _wrong_tensors(tensors: dict[str, StoredTensor], model: ModelConfig, folder: Path) -> Iterator[Problem]:
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
            yield Problem(LOAD, f"{folder} {what} {_some(found)}", ("give the folder of a model of this architecture",))
    if dtypes:
        yield Problem(LOAD, f"{folder}: {_some(dtypes)}", (f"weights are read as {', '.join(READABLE)}",))


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


def _no_weights(path: Path) -> str:
    if not path.exists():
        return f"no such folder: {path}"
    return f"{path} is {'a file' if path.is_file() else 'neither a run directory nor a Hugging Face folder'}"


def _advice(path: Path) -> tuple[str, ...]:
    kinds = "a run directory, checkpoints/step-<n> in one, or a folder with config.json and safetensors"
    nearby = path.parent if path.is_file() else path
    files = (file for pattern in ("*/run.json", "*/config.json") for file in sorted(nearby.glob(pattern)))
    inside = [str(file.parent) for file in files][:3]
    return (f"give {kinds}", *((f"in it: {', '.join(inside)}",) if inside else ()))
