"""Weights as a folder that another program reads: config.json, weights and tokenizer, there as a whole or not at all."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from primus_app.backends.base import load_backend
from primus_app.backends.given_weights import GivenWeights
from primus_app.backends.hf_names import hf_buffers, hf_parameters
from primus_app.backends.output_folder import written_whole
from primus_app.backends.stored_folder import write_note
from primus_app.data.instructions.find_template import FILE
from primus_app.run.files import json_text

DTYPES = {"fp32": "F32", "bf16": "BF16"}
"""safetensors' words by ours."""

TORCH_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
KEPT_FP32 = "e_score_correction_bias"
"""transformers keeps it in float32 whatever the type of the rest."""

Tell = Callable[[int, int], None]
"""Called with the bytes that are written, and with all."""


def default_output(given: GivenWeights, target: str) -> Path | None:
    """Of a run <run>/huggingface/<model>-step-<n>, and so on; the folder's name is what model=hf calls the model."""
    if given.step is None:
        return None
    return given.step.run.converted_dir(target) / f"{given.model.name}-step-{given.step.step}"


def write_folder(given: GivenWeights, target: str, output: Path, dtype: str | None, tell: Tell) -> int:
    """Write ``output``, which ``check_output`` has passed, for ``target`` (hf, or an engine); the number of bytes of its weights.

    ``dtype`` is fp32 or bf16, by default each weight's own. What was written is read back: names, shapes and types.
    Raises:
        UserError: for a damaged checkpoint or a model that the engine has not; with code 3 where there is no room.
    """
    names = [weight.name for weight in (*hf_parameters(given.model), *hf_buffers(given.model))]
    dtypes = {name: _dtype(name, given, dtype) for name in names}
    writing = _writing(given, target, dtypes)
    with written_whole(output, writing.num_bytes, narrower=dtype != "bf16" and "F32" in dtypes.values()) as folder:
        (folder / "config.json").write_text(json_text(_settings(given, dtypes, dtype)), encoding="utf-8")
        for file in given.files:
            shutil.copyfile(file, folder / file.name)
        if given.chat_template is not None:
            (folder / FILE).write_text(given.chat_template, encoding="utf-8")
        tell(0, writing.num_bytes)
        writing.write(folder, tell)
        if target != "hf":
            write_note(folder, _identity(given, dtypes), dtypes, given.model)
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
