"""Whether the files of a torch distributed checkpoint are there and whole, by its index; a glance, without torch."""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from primus_app.backends.stored_folder import NOTE
from primus_app.config.errors import Problem
from primus_app.run.checkpoints import complete_checkpoints

INDEX = ".metadata"
ARCHIVE_BEGIN, ARCHIVE_END = b"PK\x03\x04", b"PK\x05\x06"
"""torch.save writes zip archives: their first bytes, and those of the record at their end."""

END_LENGTH = 22
"""Bytes of that record, which has no comment (APPNOTE.TXT of PKWARE, 4.3.16)."""

_HARMLESS = {("collections", "OrderedDict"), ("builtins", "set"), ("builtins", "frozenset")}


class Piece(NamedTuple):
    """Where a file of the checkpoint holds something; ``archive`` where that is a tensor, written by torch.save."""

    file: str
    begin: int
    stop: int
    archive: bool


def damage(folder: Path) -> str | None:
    """What is missing or broken in ``folder``, in words; None where nothing is seen."""
    if not (folder / INDEX).is_file():
        return f"its index {INDEX} is missing"
    try:
        pieces = sorted(read_pieces(folder))
    except Exception as error:  # A pickle that is damaged may raise anything.
        return f"its index {INDEX} cannot be read: {type(error).__name__}: {error}".rstrip(": ")
    if not pieces:
        return f"its index {INDEX} names no tensor"
    found = list(dict.fromkeys(_broken(folder, pieces)))
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "") if found else None


def stored_problem(folder: Path, where: str) -> list[Problem]:
    """The damage of ``folder`` at ``where``, with what to do about it."""
    why = damage(folder)
    if why is None:
        return []
    if (folder / NOTE).exists():
        return [
            Problem(
                where, f"the converted weights in {folder} are damaged: {why}", ("convert the weights again, or copy the folder again",)
            )
        ]
    of_run = re.fullmatch(r"step-\d+", folder.name)
    fix = "take another step of that run, if it has one" if of_run else "copy the folder again"
    return [Problem(where, f"the checkpoint {folder} is damaged: {why}", (fix,))]


def whole_step(checkpoints: Path) -> tuple[int | None, dict[int, str]]:
    """The newest complete step without a damage that is seen, None where there is none; and the newer ones with theirs."""
    damaged: dict[int, str] = {}
    for step in complete_checkpoints(checkpoints):
        why = damage(checkpoints / f"step-{step}")
        if why is None:
            return step, damaged
        damaged[step] = why
    return None, damaged


def read_pieces(folder: Path) -> Iterator[Piece]:
    """What the index says, read with stand-ins for all of torch's classes. Raises whatever a damaged index makes the reading raise."""
    with (folder / INDEX).open("rb") as file:
        found = _Reader(file).load()
    tensors = {key for key, entry in found.state_dict_metadata.items() if type(entry).__name__ == "TensorStorageMetadata"}
    for index, place in (found.storage_data or {}).items():
        yield Piece(place.relative_path, place.offset, place.offset + place.length, index.fqn in tensors)


def _broken(folder: Path, pieces: list[Piece]) -> Iterator[str]:
    for name in dict.fromkeys(piece.file for piece in pieces):
        own, file = [piece for piece in pieces if piece.file == name], folder / name
        if not file.is_file():
            yield f"{name} is missing"
        elif file.stat().st_size < (end := max(piece.stop for piece in own)):
            yield f"{name} is too short, {file.stat().st_size} of {end} bytes"
        else:
            with file.open("rb") as stream:
                if any(piece.archive and not _is_archive(stream, piece) for piece in own):
                    yield f"{name} holds other bytes than were written"


def _is_archive(stream: IO[bytes], piece: Piece) -> bool:
    stream.seek(piece.begin)
    begins = stream.read(len(ARCHIVE_BEGIN)) == ARCHIVE_BEGIN
    stream.seek(max(piece.begin, piece.stop - END_LENGTH))
    return begins and stream.read(len(ARCHIVE_END)) == ARCHIVE_END


class _StandIn:
    """An object of a class that is not imported; of what it was made with only its fields are kept."""

    def __new__(cls, *args: Any, **kwargs: Any) -> "_StandIn":
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            self.__dict__.update(part if isinstance(part, dict) else {})


class _Reader(pickle.Unpickler):
    """Runs nothing that an index names: every class and every function is a stand-in."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(module, name) if (module, name) in _HARMLESS else type(name, (_StandIn,), {})
