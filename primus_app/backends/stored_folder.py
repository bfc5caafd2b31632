"""Folders with weights in an engine's format: whose they are, and what ``convert`` notes in those that it writes. Imports no torch."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.run.checkpoints import MARKERS

MEGATRON_MARK = "common.pt"
"""Megatron writes this file before all others of a step, TorchTitan never."""

NOTE = "weights.json"
"""Beside the tensors of a folder that convert has written for an engine."""


@dataclass(frozen=True)
class Note:
    """``identity`` names the content as checkpoint.load_digest does; ``dtypes`` are safetensors' words by name, "" for the others."""

    identity: str
    dtypes: Mapping[str, str]

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
    """Whether ``folder`` holds weights that convert has written for an engine."""
    return (folder / NOTE).exists()


def note_text(identity: str, dtypes: Mapping[str, str]) -> str:
    """A note as it is written, with the most common type said once."""
    common = Counter(dtypes.values()).most_common(1)[0][0]
    others = {name: dtype for name, dtype in dtypes.items() if dtype != common}
    return json.dumps(asdict(Note(identity, {"": common, **others})), indent=2) + "\n"


def read_note(folder: Path, where: str) -> Note:
    """Raises UserError at ``where`` for one that cannot be read."""
    try:
        note = Note(**json.loads((folder / NOTE).read_text(encoding="utf-8")))
        note.dtype("")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(Problem(where, f"{folder / NOTE} cannot be read: {error!r}", ("convert the weights again",))) from None
    return note
