"""Tab completion: the shell hands over its line, and gets verbs, flags, groups, keys and values, one a line; needs no Hydra."""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from primus_app.cli.arguments import FILE_VERBS, OWN_FLAGS, VERBS
from primus_app.config.compose import groups
from primus_app.config.errors import ExitCode
from primus_app.config.kinds import choices, schema_fields, schema_leaves, takes_truth

FLAGS = ("--cfg", "--config-dir", "--config-name", "--help", "--hydra-help", "--info", "--multirun", "--package", "--resolve", "--version")
FLAG_VALUES = {
    "--cfg": ("job", "hydra", "all"),
    "--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
    "--to": ("hf", "megatron", "torchtitan"),
    "--dtype": ("fp32", "bf16"),
}
PATHS = ("workspace", "model.path", "data.path", "data.cache_dir", "checkpoint.load")
"""Keys whose value is a file or a folder."""


def complete() -> int:
    """Answer the shell: its line is in COMP_LINE, up to the cursor at COMP_POINT."""
    line = os.environ["COMP_LINE"]
    for candidate in candidates(line[: int(os.environ.get("COMP_POINT") or len(line))]):
        print(candidate)
    return int(ExitCode.DONE)


def candidates(line: str) -> list[str]:
    """What the last word of ``line`` may become; nothing where a flag's value is free."""
    *before, word = line.split(" ")
    before = [each for each in before[1:] if each]
    if before and before[-1] in ("--config-dir", "-cd"):
        return _files(word)
    if before and before[-1] in FLAG_VALUES:
        return _starting(FLAG_VALUES[before[-1]], word)
    verb = before[0] if before and before[0] in VERBS else "train"
    if word.startswith("-"):
        return _starting(OWN_FLAGS[verb] if verb in FILE_VERBS else (*OWN_FLAGS[verb], *FLAGS), word)
    if verb in FILE_VERBS:
        return _files(word)
    options = groups(_config_dir(before))
    if "=" in word:
        return list(_values(word, options))
    return _starting([*(VERBS if not before else ()), *_next_parts(word, options)], word)


def _starting(words: Iterable[str], start: str) -> list[str]:
    return sorted({word for word in words if word.startswith(start)})


def _config_dir(before: list[str]) -> str | None:
    given = [value for flag, value in pairwise(before) if flag in ("--config-dir", "-cd")]
    return os.path.expanduser(given[-1]) if given else None


def _next_parts(word: str, options: Mapping[str, list[str]]) -> Iterator[str]:
    """The keys up to their next dot, as a shell completes folders; groups end in =."""
    yield from (f"{group}=" for group in options)
    for key in schema_leaves():
        rest, dot, _ = key[word.rfind(".") + 1 :].partition(".")
        yield key[: word.rfind(".") + 1] + rest + (dot or "=")


def _values(word: str, options: Mapping[str, list[str]]) -> Iterator[str]:
    """``key=value`` with each value that the key takes; of a list of values the last is completed."""
    key, _, typed = word.partition("=")
    listed = typed[: typed.rfind(",") + 1]
    field = schema_fields().get(key)
    if key in options:
        known = options[key]
    elif field is None:
        return
    elif key in PATHS:
        known = _files(typed)
    elif takes_truth(field):
        known = ["true", "false"]
    else:
        known = choices(field) or ([] if field.is_required() else [_as_typed(field.default)])
    yield from _starting((f"{key}={listed}{value}" for value in known), word)


def _as_typed(default: object) -> str:
    return "null" if default is None else str(default)


def _files(start: str) -> list[str]:
    found = glob.glob(glob.escape(os.path.expanduser(start)) + "*")
    return [f"{path}/" if os.path.isdir(path) else path for path in sorted(found)]
