"""A saved step as a Hugging Face folder: config.json, weights and tokenizer, there as a whole or not at all."""

import os
import secrets
import shutil
from pathlib import Path

from primus_app.backends.base import WeightExport, load_backend
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.huggingface_export import config_json
from primus_app.config.schema import DataConfig
from primus_app.data.tokenizer import open_tokenizer
from primus_app.run.files import TEMPORARY_PREFIX, free_space, json_text, sync_folder
from primus_app.run.saved_step import SavedStep

TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16"}
TOKENISED = ("stdlib_text", "text")
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja"),
)
ELSEWHERE = ("choose another place with --output DIR",)
SPARE_BYTES = 16 << 20
"""Room for headers, configuration and tokenizer beside the weights."""


def default_output(step: SavedStep) -> Path:
    """<run>/huggingface/<model>-step-<n>; the folder's name is what model=hf calls the model."""
    return step.run.huggingface_dir / f"{step.config.model.name}-step-{step.step}"


def check_output(output: Path) -> list[Problem]:
    """What is in the way; nothing is ever overwritten."""
    if output.is_dir() and not any(output.iterdir()):
        return []
    if output.exists() or output.is_symlink():
        return [Problem(str(output), "exists already, and nothing is overwritten", ("choose another place with --output DIR",))]
    return []


def write_folder(step: SavedStep, output: Path, dtype: str) -> int:
    """Write ``output``, which ``check_output`` has passed; the number of bytes of its weights.

    Raises:
        UserError: for a damaged checkpoint; with code 3 where there is no room.
    """
    model = step.config.model
    export = load_backend(step.config.backend.name).export_hf(model, step.folder, dtype)
    temporary = output.parent / f"{TEMPORARY_PREFIX}{output.name}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _require_room(output.parent, export)
        temporary.mkdir()
        settings = config_json(model, dtype=TORCH_NAMES[dtype], end_of_document=end_of_document(step.config.data))
        (temporary / "config.json").write_text(json_text(settings), encoding="utf-8")
        for file in tokenizer_files(step.config.data.tokenizer):
            shutil.copyfile(file, temporary / file.name)
        export.write(temporary)
        _share(temporary)
        temporary.rename(output)
        sync_folder(output.parent)
    except OSError as error:
        what = f"{error.strerror or error} while writing it; {free_space(output)}"
        raise UserError(Problem(str(output), what, ELSEWHERE), ExitCode.UNFIT_MACHINE) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return export.num_bytes


def end_of_document(data: DataConfig) -> int | None:
    """The token that ends a text, where the run made its tokens itself."""
    return open_tokenizer(data.tokenizer, data.end_of_document).end_of_document if data.source in TOKENISED else None


def tokenizer_files(tokenizer: str) -> list[Path]:
    """The files of a Hugging Face tokenizer, given by its tokenizer.json or its folder; none for one that is built in."""
    place = Path(tokenizer).expanduser()
    folder = place if place.is_dir() else place.parent
    is_built_in = not place.exists() or not (folder / "tokenizer.json").exists()
    return [] if is_built_in else [folder / name for name in TOKENIZER_FILES if (folder / name).exists()]


def _share(folder: Path) -> None:
    """safetensors writes files that nobody else may read; a team shares its runs."""
    mode = (folder / "config.json").stat().st_mode
    for file in folder.iterdir():
        file.chmod(mode)


def _require_room(folder: Path, export: WeightExport) -> None:
    needed = export.num_bytes + SPARE_BYTES
    if shutil.disk_usage(folder).free < needed:
        what = f"the weights need {needed / 2**30:.2f} GiB, and {free_space(folder)}"
        raise UserError(Problem(str(folder), what, (*ELSEWHERE, "--dtype bf16 halves the size of fp32")), ExitCode.UNFIT_MACHINE)
