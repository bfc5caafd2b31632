"""Weights to convert: of a run's step, of a Hugging Face folder, or of a folder that was converted before. Imports no torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus_app.backends.hf_names import hf_buffers, hf_parameters
from primus_app.backends.hf_weights import find_tensors, identity, model_of
from primus_app.backends.safetensors_files import has_weights
from primus_app.backends.stored_folder import is_converted, read_note
from primus_app.backends.stored_index import stored_problem
from primus_app.config.errors import Problem, UserError
from primus_app.config.huggingface_export import config_json
from primus_app.config.schema import DataConfig, ModelConfig
from primus_app.data.instructions.find_template import FILE, chosen_template
from primus_app.data.tokenizer import open_tokenizer
from primus_app.run.saved_step import SavedStep, find_saved_step, is_run_or_step

TOKENISED = ("stdlib_text", "text", "instructions")
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", FILE),
)
BESIDE_WEIGHTS = (*TOKENIZER_FILES, "generation_config.json")
"""Of a Hugging Face folder, what goes along with its weights."""

SRC = "SRC"
"""What the verb's help calls it."""

SOURCES = "a run directory, checkpoints/step-<n> in one, or a folder with config.json and weights"


@dataclass(frozen=True)
class GivenWeights:
    """``dtypes`` are safetensors' words by each weight's name, ``settings`` is config.json, ``files`` go along with the weights.

    ``chat_template`` is the one that a run learnt by, where it was not its tokenizer's own.
    """

    folder: Path
    model: ModelConfig
    label: str
    identity: str
    dtypes: Mapping[str, str]
    settings: Mapping[str, Any]
    files: tuple[Path, ...]
    step: SavedStep | None = None
    chat_template: str | None = None


def find_given(path: Path, step: int | None) -> GivenWeights:
    """The weights at ``path``: a run directory (``step``, by default the newest), a step in it, or a folder with a config.json.

    Raises:
        UserError: with everything that speaks against them.
    """
    if is_run_or_step(path):
        saved = find_saved_step(path, step, where=SRC)
        _require_whole(saved.folder)
        return _of_run(saved)
    if not is_model_folder(path):
        raise UserError(Problem(str(path), _nothing(path), (f"give {SOURCES}",)))
    if step is not None:
        raise UserError(Problem("--step", f"has no effect: {path} is no run, it holds one model", ("leave it out",)))
    model = model_of(path, SRC)
    names = [weight.name for weight in (*hf_parameters(model), *hf_buffers(model))]
    if is_converted(path):
        note = read_note(path, model, SRC)
        _require_whole(path)
        named, dtypes = note.identity, {name: note.dtype(name) for name in names}
    elif has_weights(path):
        tensors = find_tensors(path, model, SRC)
        named, dtypes = identity(tensors), {name: tensors[name].dtype for name in names}
    else:
        raise UserError(Problem(str(path), "has a config.json and no weights beside it", ("give a folder with safetensors",)))
    settings = json.loads((path / "config.json").read_text(encoding="utf-8"))
    files = tuple(path / name for name in BESIDE_WEIGHTS if (path / name).exists())
    return GivenWeights(path, model, f"{model.name}, {path}", named, dtypes, settings, files)


def is_model_folder(path: Path) -> bool:
    """Whether ``path`` is no run, and says what model it holds."""
    return not is_run_or_step(path) and (path / "config.json").exists()


def _require_whole(folder: Path) -> None:
    if problems := stored_problem(folder, SRC):
        raise UserError(problems)


def _nothing(path: Path) -> str:
    if not path.exists():
        return "no such folder"
    return "is a file" if path.is_file() else "is neither a run directory nor a folder with a config.json"


def _of_run(step: SavedStep) -> GivenWeights:
    model, data = step.config.model, step.config.data
    names = [weight.name for weight in (*hf_parameters(model), *hf_buffers(model))]
    settings = config_json(model, end_of_document=end_of_document(data))
    label = f"{model.name}, step {step.step} of {step.run.path}"
    files = tuple(tokenizer_files(data.tokenizer))
    template = chosen_template(data) if files else None
    return GivenWeights(step.folder, model, label, step.identity, dict.fromkeys(names, "F32"), settings, files, step, template)


def end_of_document(data: DataConfig) -> int | None:
    """The token that ends a text, where the run made its tokens itself."""
    return open_tokenizer(data.tokenizer, data.end_of_document).end_of_document if data.source in TOKENISED else None


def tokenizer_files(tokenizer: str) -> list[Path]:
    """The files of a Hugging Face tokenizer, given by its tokenizer.json or its folder; none for one that is built in."""
    place = Path(tokenizer).expanduser()
    folder = place if place.is_dir() else place.parent
    is_built_in = not place.exists() or not (folder / "tokenizer.json").exists()
    return [] if is_built_in else [folder / name for name in TOKENIZER_FILES if (folder / name).exists()]
