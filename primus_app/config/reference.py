"""docs/configuration.md, made from the schema and conf/: every key and every option with what it means."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from primus_app.config.compose import groups
from primus_app.config.kinds import allowed, schema_fields, section_of
from primus_app.config.location import conf_dir
from primus_app.config.validate import shown

INTRODUCTION = """\
# Configuration

Made by `./scripts/docs` from `primus_app/config/schema/` and `conf/`; a test keeps it in step.

A key is typed as `section.key=value`, an option of a group as `group=option`: `primus model=qwen3_tiny training.steps=50`. What is typed
wins over the option's file, which wins over the defaults in `conf/config.yaml`. `primus --cfg job` shows the result, `primus --help` all
groups and options, and [extending.md](extending.md) how to add an option.

*Half* is **what** for a key that defines the loss curve: a run goes on only with the same ones. A key of the half *how* may change between
two starts of one run: see [run-directory.md](run-directory.md).
"""

EXPERIMENT = "An experiment sets keys of any section and chooses options of any group: `primus experiment=quick`. By default there is none."

NO_DEFAULT = {"user_name": "your login"}
"""What stands in the place of a default where the schema has none; elsewhere the model's file gives the value."""


def configuration_page() -> str:
    """The whole page as Markdown."""
    sections = [key for key in schema_fields() if _is_section(key)]
    parts = [INTRODUCTION, "## Keys of their own\n", _keys_table("")]
    for section in sections:
        field = schema_fields()[section]
        parts += [f"{'#' * (2 + section.count('.'))} {section}\n", f"{_summary(field)}\n", _keys_table(section)]
        parts += _options(section) if "." not in section else []
    return "\n".join([*parts, "## experiment\n", f"{EXPERIMENT}\n", *_options("experiment")]).rstrip() + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines) + "\n"


def _is_section(key: str) -> bool:
    return section_of(schema_fields()[key].annotation) is not None


def _summary(field: FieldInfo) -> str:
    section = section_of(field.annotation)
    assert section is not None
    return _as_typed(" ".join((section.__doc__ or "").split()))


def _keys_table(section: str) -> str:
    keys = [key for key in schema_fields() if key.rpartition(".")[0] == section and not _is_section(key)]
    return table(("key", "takes", "default", "unit", "half", "meaning"), [_key_row(key, schema_fields()[key]) for key in keys])


def _key_row(key: str, field: FieldInfo) -> tuple[str, ...]:
    extra: dict[str, Any] = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    default = NO_DEFAULT.get(key, "") if field.is_required() else f"`{_plain(field.default)}`"
    half = "**what**" if extra["half"] == "what" else "how"
    return f"`{key}`", allowed(field), default, str(extra["unit"]), half, _as_typed(field.description or "")


def _as_typed(help: str) -> str:
    return re.sub(r"\bNone\b", "null", help)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else shown(list(value) if isinstance(value, tuple) else value)


def _options(group: str) -> Iterator[str]:
    if options := groups().get(group):
        yield f"Options, `{group}=<option>`:\n"
        yield table(("option", "what it is"), [(f"`{option}`", _first_comment(group, option)) for option in options])


def _first_comment(group: str, option: str) -> str:
    lines = (conf_dir() / group / f"{option}.yaml").read_text(encoding="utf-8").splitlines()
    comments = [line.removeprefix("#").strip() for line in lines if line.startswith("#") and "@package" not in line]
    return comments[0] if comments else ""
