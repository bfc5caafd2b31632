"""The safetensors files of a Hugging Face folder by their headers alone: names, shapes, types and places; imports no torch."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from primus_app.config.errors import Problem, UserError

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SAMPLE_BYTES = 4096
"""Bytes read at the beginning and at the end of each tensor for the digest of a folder."""

MAX_HEADER_BYTES = 100_000_000
"""The format's own bound (safetensors' documentation)."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor on disk; ``dtype`` in safetensors' words (F32, BF16), bytes ``start`` to ``stop`` of ``file``."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def stored_tensors(folder: Path, where: str) -> dict[str, StoredTensor]:
    """Every tensor of model.safetensors, or of the files that model.safetensors.index.json names.

    Raises:
        UserError: at ``where``, with every file that is missing, cut off or no safetensors file.
    """
    problems: list[Problem] = []
    tensors: dict[str, StoredTensor] = {}
    for file in _files(folder, where):
        try:
            tensors |= {tensor.name: tensor for tensor in _read_header(file)}
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            problems.append(Problem(where, f"{file}: {reason}", ("copy or download this file again",)))
    if problems:
        raise UserError(problems)
    return tensors


def sampled_digest(tensors: Iterable[StoredTensor]) -> str:
    """blake2b (32 hex digits) of each tensor's name, type, shape and its first and last ``SAMPLE_BYTES``.

    A whole model takes minutes to read; another model, and another step of the same, differ at the ends of their tensors.
    """
    digest = blake2b(digest_size=16)
    for tensor in sorted(tensors, key=lambda each: each.name):
        digest.update(f"{tensor.name}\0{tensor.dtype}\0{tensor.shape}\0".encode())
        with tensor.file.open("rb") as file:
            for first in (tensor.start, max(tensor.start, tensor.stop - SAMPLE_BYTES)):
                file.seek(first)
                digest.update(file.read(min(SAMPLE_BYTES, tensor.stop - first)))
    return digest.hexdigest()


def has_weights(folder: Path) -> bool:
    """Whether there is something that ``stored_tensors`` would read."""
    return (folder / WHOLE).exists() or (folder / INDEX).exists()


def _files(folder: Path, where: str) -> list[Path]:
    """transformers takes the single file where both are there."""
    if (folder / WHOLE).exists():
        return [folder / WHOLE]
    try:
        names = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
    except FileNotFoundError:
        other = any(folder.glob("*.bin")) and "; its .bin files are pickles, which are not read"
        fix = "save it with transformers' save_pretrained, which writes safetensors" if other else "give a folder that has one"
        raise UserError(Problem(where, f"neither {WHOLE} nor {INDEX} in {folder}{other or ''}", (fix,))) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(Problem(where, f"{folder / INDEX} cannot be read: {error!r}", ("copy it again",))) from None
    return [folder / name for name in names]


def _read_header(path: Path) -> list[StoredTensor]:
    """The format: 8 bytes with the header's length, the header as JSON, the data (huggingface.co/docs/safetensors)."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= MAX_HEADER_BYTES:
            raise ValueError("no safetensors file")
        header: dict[str, Any] = json.loads(file.read(length))
        size = file.seek(0, 2)
    header.pop("__metadata__", None)
    begin = 8 + length
    tensors = [_tensor(path, name, entry, begin) for name, entry in header.items()]
    end = max((tensor.stop for tensor in tensors), default=begin)
    if end > size:
        raise ValueError(f"cut off: {size:,} bytes, and its header announces {end:,}")
    return tensors


def _tensor(path: Path, name: str, entry: dict[str, Any], begin: int) -> StoredTensor:
    try:
        first, last = entry["data_offsets"]
        return StoredTensor(name, path, entry["dtype"], tuple(entry["shape"]), begin + first, begin + last)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no safetensors file ({error!r} in the header)") from None
