"""Folders with weights in an engine's format: whose they are, and what ``convert`` notes in those that it writes. Imports no torch."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from primus_app.backends.disagreement import disagreement, shapes_of, some
from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import ModelConfig
from primus_app.run.checkpoints import MARKERS
from primus_app.run.files import json_text, parse_file

MEGATRON_MARK = "common.pt"
"""Megatron writes this file before all others of a step, TorchTitan never."""

NOTE = "weights.json"
"""Beside the tensors of a folder that convert has written for an engine."""


AGAIN = "convert the weights again"


class Note(BaseModel):
    """``identity`` names the content as checkpoint.load_digest does; ``dtypes`` are safetensors' words by name, "" for the others.

    ``model`` is what the weights are of, whatever config.json says later; ``files`` are the sizes of the engine's files, in bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity: str
    dtypes: dict[str, str]
    model: ModelConfig
    files: dict[str, int]

    def dtype(self, name: str) -> str:
        """What the weight ``name`` was before, and becomes again."""
        return self.dtypes.get(name, self.dtypes[""])


def engine_of(step_folder: Path) -> str:
    """The name of the engine that has written a checkpoint."""
    return "megatron" if (step_folder / MEGATRON_MARK).exists() else "torchtitan"


def is_stored(folder: Path) -> bool:
    """Whether ``folder`` is a complete step in an engine's format."""
    return any((folder / marker).exists() for marker in MARKERS)


def is_converted(folder: Path) -> bool:
    """Whether ``folder`` holds weights that convert has written for an engine, or what is left of them."""
    return (folder / NOTE).exists() or is_stored(folder) or any(folder.glob("*.distcp"))


def write_note(folder: Path, identity: str, dtypes: Mapping[str, str], model: ModelConfig) -> None:
    """Beside the files of ``folder``, all of which are there; the most common type is said once."""
    common = Counter(dtypes.values()).most_common(1)[0][0]
    others = {name: dtype for name, dtype in dtypes.items() if dtype != common}
    files = {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if _is_engines(file.name)}
    note = Note(identity=identity, dtypes={"": common, **others}, model=model.model_copy(update={"path": None}), files=files)
    (folder / NOTE).write_text(json_text(note.model_dump(mode="json")), encoding="utf-8")


def read_note(folder: Path, model: ModelConfig, where: str) -> Note:
    """What convert has noted, held against ``model``, which config.json describes, and against the files that are there.

    Raises:
        UserError: at ``where``, with everything that does not agree, or for a note that cannot be read.
    """
    try:
        note = parse_file(folder / NOTE, Note.model_validate_json)
    except UserError as error:
        raise UserError([Problem(where, f"{each.where}: {each.what}", (AGAIN,)) for each in error.problems], error.code) from None
    if note is None:
        raise UserError(Problem(where, f"{folder / NOTE} is missing, which convert writes with the weights", (AGAIN,)))
    if problems := [Problem(where, what, fix) for what, fix in _disagreements(folder, model, note)]:
        raise UserError(problems)
    return note


def _disagreements(folder: Path, model: ModelConfig, note: Note) -> Iterator[tuple[str, tuple[str, ...]]]:
    changed = [name for name, size in note.files.items() if _size(folder / name) != size]
    gone = [name for name in changed if _size(folder / name) is None]
    other = [f"{name} has {_size(folder / name):,} bytes of {note.files[name]:,}" for name in changed if name not in gone]
    if said := [*(f"{name} is missing" for name in gone), *other]:
        yield f"{folder} is damaged: {some(said)}", (AGAIN, "or bring the files back from a copy")
    if what := disagreement(folder, shapes_of(note.model), shapes_of(model)):
        yield what, ("bring back the config.json that convert wrote", f"or {AGAIN}")


def _is_engines(name: str) -> bool:
    """What no one edits, unlike config.json and the tokenizer."""
    return name in (*MARKERS, MEGATRON_MARK, "metadata.json") or name.endswith(".distcp")


def _size(file: Path) -> int | None:
    return file.stat().st_size if file.exists() else None
