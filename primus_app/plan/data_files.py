"""Whether the files that data names are there: a few calls of stat, no file is opened."""

import difflib
import os
from pathlib import Path

from primus_app.config.errors import Problem
from primus_app.config.schema import DataConfig
from primus_app.config.typed import typed

TOKENIZER_FILE = "tokenizer.json"
BYTE = "byte"
PLAIN = "plain"
"""The chat template that needs no file."""


TOKENISED = ("text", "instructions")
"""Sources whose files are read with a tokenizer."""


def check_files(data: DataConfig) -> list[Problem]:
    """One problem for each path of ``data`` that leads nowhere; a path without effect is not looked at."""
    problems: list[Problem] = []
    if data.source == "indexed":
        problems += [found for path in paths_of(data) if (found := missing_pair(prefix_of(path)))]
    if data.source in TOKENISED:
        problems += [found for path in paths_of(data) if (found := _missing("data.path", path))]
        if data.tokenizer != BYTE and (found := missing_tokenizer(data.tokenizer)):
            problems.append(found)
    if data.source == "instructions" and data.chat_template not in (None, PLAIN):
        problems += _missing_template(data.chat_template)
    return problems


def _missing_template(path: str) -> list[Problem]:
    found = _missing("data.chat_template", path)
    return [Problem(found.where, found.what, (*found.fix, f"data.chat_template={PLAIN} needs no file"))] if found else []


def paths_of(data: DataConfig) -> list[str]:
    """``data.path`` as a list, empty where there is none."""
    path = data.path or []
    return [path] if isinstance(path, str) else path


def absolute(path: str) -> str:
    """``path`` from the root, with ~ for the user's home."""
    return os.path.abspath(os.path.expanduser(path))


def prefix_of(path: str) -> str:
    """Absolute path of a pair without .bin or .idx, however it was written."""
    return absolute(path).removesuffix(".bin").removesuffix(".idx")


def tokenizer_file(path: str) -> Path:
    """The tokenizer.json that ``path``, the file or its folder, names."""
    given = Path(absolute(path))
    return given / TOKENIZER_FILE if given.is_dir() else given


def missing_pair(prefix: str) -> Problem | None:
    """What is wrong when one of ``prefix``.bin and ``prefix``.idx is not there; an unreadable one counts as there."""
    for path in (Path(f"{prefix}.bin"), Path(f"{prefix}.idx")):
        if not os.path.lexists(path):
            return Problem(str(path), "does not exist.", _pairs_nearby(path))
    return None


def missing_tokenizer(path: str) -> Problem | None:
    """What is wrong when no tokenizer.json lies at ``path``."""
    file = tokenizer_file(path)
    if os.path.lexists(file):
        return None
    if file.name == TOKENIZER_FILE and file.parent.is_dir():
        what = f"{path!r}: the folder has no {TOKENIZER_FILE}."
        fix = (f"{TOKENIZER_FILE} is what `save` of the tokenizers library and save_pretrained of transformers write",)
        return Problem("data.tokenizer", what, fix)
    if difflib.get_close_matches(path, [BYTE], cutoff=0.6):
        return Problem("data.tokenizer", f"{path!r} is no tokenizer and no file.", ("did you mean data.tokenizer=byte?",))
    problem = _missing("data.tokenizer", path)
    assert problem is not None
    hub = "names on the Hugging Face hub are not downloaded: give the file or its folder"
    return Problem("data.tokenizer", problem.what, (*problem.fix, "data.tokenizer=byte needs no file", hub))


def _missing(key: str, path: str) -> Problem | None:
    full = Path(absolute(path))
    if os.path.lexists(full):
        return None
    if "://" in path:
        return Problem(key, f"{path!r} is an address; files are read from a file system.", ("copy it to a folder, or mount it",))
    folder = next(parent for parent in full.parents if parent.is_dir())
    if folder != full.parent:
        return Problem(key, f"{path!r} does not exist.", (f"{folder} is the last folder of {full} that does",))
    near = difflib.get_close_matches(full.name, _names(folder), n=1)
    advice = tuple(f"{key}={folder / name} is in this folder" for name in near)
    return Problem(key, f"{path!r} does not exist.", advice or (f"{folder} has no such entry",))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _pairs_nearby(path: Path) -> tuple[str, ...]:
    prefix = path.with_suffix("")
    if prefix.is_dir():
        pairs = sorted(found.stem for found in prefix.glob("*.idx"))
        return tuple(f"{typed('data.path', prefix / pair)} is in this folder" for pair in pairs[:3]) or ("it is a folder without any .idx",)
    if not path.parent.is_dir():
        return (f"the folder {path.parent} does not exist either",)
    pairs = [found.stem for found in path.parent.glob("*.idx")]
    partner = path.with_suffix(".idx" if path.suffix == ".bin" else ".bin")
    if partner.exists():
        return (f"{partner.name} alone is no corpus: copy both files",)
    near = difflib.get_close_matches(prefix.name, pairs, n=1) or sorted(pairs)[:3]
    return tuple(f"{typed('data.path', path.parent / pair)} is in this folder" for pair in near) or (f"{path.parent} has no .idx at all",)
