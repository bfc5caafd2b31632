"""docs/patches.md and docs/native-options.md, made from the engines' tables: what of them is changed, and what they may be told."""

from collections.abc import Iterator

from primus_app.backends.base import load_backend
from primus_app.backends.stand_ins import StandIn
from primus_app.config.kinds import choices, schema_fields
from primus_app.config.reference import table

INTRODUCTION = """\
# Corrections of the engines

Made by `./scripts/docs` from the registries in `primus_app/backends/`; a test keeps it in step.

A **patch** changes an upstream library while the program runs, because no option or extension point of it does. Each is declared here,
applied only where its condition holds, reported in the log of the run, and fails loudly when what it changes is gone.
`backend.patches=auto` (the default) applies those that are needed, `none` none, `backend.patches=[id,id]` those named.

    patch torchtitan-final-sleep applied to torchtitan.trainer.time, because always

A **stand-in** is a part of ours that goes in through an extension point of the engine. It changes nothing upstream, so it cannot be
switched off.
"""

NATIVE = """\
# Options of the engines' own

Made by `./scripts/docs` from the tables in `primus_app/backends/*/native/`; tests hold every name and type against the installed engines.

`backend.native.<option>=<value>` passes an option of the engine through. Options say *how* a run is carried out and may change between two
starts of it. What would change the loss curve, what a key of ours sets and what would have no effect is refused before anything starts.
"""


def native_page() -> str:
    """docs/native-options.md."""
    from primus_app.backends.megatron.native.reference import megatron_part
    from primus_app.backends.torchtitan.native.reference import titan_part

    return "\n".join([NATIVE, *titan_part(), *megatron_part()]).rstrip() + "\n"


def patches_page() -> str:
    """The whole page as Markdown."""
    names = choices(schema_fields()["backend.name"])
    return "\n".join([INTRODUCTION, *(part for name in names for part in _backend(name))]).rstrip() + "\n"


def _backend(name: str) -> Iterator[str]:
    backend = load_backend(name)
    yield f"## {name}\n"
    yield "### Patches\n"
    rows = [(f"`{patch.id}`", f"`{patch.target}`", patch.upstream, patch.condition, patch.reason) for patch in backend.patches()]
    yield table(("id", "changes", "upstream", "applied where", "reason"), rows)
    if stand_ins := _stand_ins(name):
        yield "### Stand-ins\n"
        yield table(
            ("stand-in", "goes in through", "where", "reason"),
            [(f"`{each.part}`", each.through, each.condition, each.reason) for each in stand_ins],
        )


def _stand_ins(name: str) -> tuple[StandIn, ...]:
    from importlib import import_module
    from importlib.util import find_spec

    module = f"primus_app.backends.{name}.stand_ins"
    return import_module(module).STAND_INS if find_spec(module) else ()
