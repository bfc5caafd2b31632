"""Weights as a folder that another program reads: config.json, weights and tokenizer, there as a whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from primus_app.backends.base import load_backend
from primus_app.backends.given_weights import GivenWeights
from primus_app.backends.hf_names import hf_buffers, hf_parameters
from primus_app.backends.stored_folder import NOTE, note_text
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.data.instructions.find_template import FILE
from primus_app.run.files import TEMPORARY_PREFIX, free_space, json_text, sync_folder

DTYPES = {"fp32": "F32", "bf16": "BF16"}
"""safetensors' words by ours."""

TORCH_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
KEPT_FP32 = "e_score_correction_bias"
"""transformers keeps it in float32 whatever the type of the rest."""

ELSEWHERE = ("choose another place: convert SRC DST --to …",)
SPARE_BYTES = 16 << 20
"""Room for headers, configuration and tokenizer beside the weights."""

Tell = Callable[[int, int], None]
"""Called with the bytes that are written, and with all."""


def default_output(given: GivenWeights, target: str) -> Path | None:
    """Of a run <run>/huggingface/<model>-step-<n>, and so on; the folder's name is what model=hf calls the model."""
    if given.step is None:
        return None
    return given.step.run.converted_dir(target) / f"{given.model.name}-step-{given.step.step}"


def check_output(output: Path) -> list[Problem]:
    """What is in the way; nothing is ever overwritten."""
    if output.is_dir() and not any(output.iterdir()):
        return []
    if output.exists() or output.is_symlink():
        return [Problem(str(output), "exists already, and nothing is overwritten", ELSEWHERE)]
    return []


def write_folder(given: GivenWeights, target: str, output: Path, dtype: str | None, tell: Tell) -> int:
    """Write ``output``, which ``check_output`` has passed, for ``target`` (hf, or an engine); the number of bytes of its weights.

    ``dtype`` is fp32 or bf16, by default each weight's own. What was written is read back: names, shapes and types.
    Raises:
        UserError: for a damaged checkpoint or a model that the engine has not; with code 3 where there is no room.
    """
    names = [weight.name for weight in (*hf_parameters(given.model), *hf_buffers(given.model))]
    dtypes = {name: _dtype(name, given, dtype) for name in names}
    writing = _writing(given, target, dtypes)
    temporary = output.parent / f"{TEMPORARY_PREFIX}{output.name}-{os.getpid()}-{secrets.token_hex(4)}"
    with _told(output):
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            _require_room(output.parent, writing.num_bytes)
            temporary.mkdir()
            (temporary / "config.json").write_text(json_text(_settings(given, dtypes, dtype)), encoding="utf-8")
            for file in given.files:
                shutil.copyfile(file, temporary / file.name)
            if given.chat_template is not None:
                (temporary / FILE).write_text(given.chat_template, encoding="utf-8")
            if target != "hf":
                (temporary / NOTE).write_text(note_text(_identity(given, dtypes), dtypes), encoding="utf-8")
            writing.write(temporary, tell)
            _share(temporary)
            sync_folder(temporary)
            temporary.rename(output)
            sync_folder(output.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return writing.num_bytes


def _writing(given: GivenWeights, target: str, dtypes: Mapping[str, str]) -> Any:
    from primus_app.backends.conversion import HuggingFaceWriting, NativeWriting

    if target == "hf":
        return HuggingFaceWriting(given, dtypes)
    return NativeWriting(given, load_backend(target), dtypes)


def _dtype(name: str, given: GivenWeights, dtype: str | None) -> str:
    if dtype is None or (dtype == "bf16" and name.endswith(KEPT_FP32)):
        return given.dtypes[name]
    return DTYPES[dtype]


def _settings(given: GivenWeights, dtypes: Mapping[str, str], dtype: str | None) -> dict[str, Any]:
    """config.json; of a folder its own, in which nothing changes but the type, which releases 5 of transformers call dtype."""
    settings = dict(given.settings)
    if dtype is None:
        return settings
    stored = TORCH_NAMES[DTYPES[dtype]]
    return settings | {word: stored for word in ("torch_dtype", "dtype") if word in settings or word == "torch_dtype"}


def _identity(given: GivenWeights, dtypes: Mapping[str, str]) -> str:
    """The same numbers have the same name in every format; rounded ones are others."""
    changed = sorted({dtype for name, dtype in dtypes.items() if dtype != given.dtypes[name] and dtype != "F32"})
    return ":".join((given.identity, *changed))


@contextmanager
def _told(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"{error.strerror or error} while writing it; {free_space(output)}"
        raise UserError(Problem(str(output), what, ELSEWHERE), ExitCode.UNFIT_MACHINE) from error


def _share(folder: Path) -> None:
    """Temporary files may be for the owner alone; a team shares its runs."""
    mode = (folder / "config.json").stat().st_mode
    for file in folder.iterdir():
        file.chmod(mode)


def _require_room(folder: Path, num_bytes: int) -> None:
    needed = num_bytes + SPARE_BYTES
    if shutil.disk_usage(folder).free < needed:
        what = f"the weights need {needed / 2**30:.2f} GiB, and {free_space(folder)}"
        raise UserError(Problem(str(folder), what, (*ELSEWHERE, "--dtype bf16 halves the size of fp32")), ExitCode.UNFIT_MACHINE)
