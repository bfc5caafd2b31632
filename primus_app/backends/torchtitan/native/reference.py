"""docs/native-options.md, made from the tables: what of TorchTitan may be passed through, and whose everything else is."""

from collections.abc import Iterator

from pydantic.fields import FieldInfo

from primus_app.backends.torchtitan.native.options import OPTIONS
from primus_app.backends.torchtitan.native.owned import OWNED, REFUSED
from primus_app.config.kinds import allowed
from primus_app.config.reference import table

INTRODUCTION = """\
# TorchTitan's own options

Made by `./scripts/docs` from `primus_app/backends/torchtitan/native/`; tests hold every name and type against the installed torchtitan.

`backend.native.<option>=<value>` passes an option of torchtitan 0.3.0 through: `primus backend.native.compile.enable=true`. Options
say *how* a run is carried out and may change between two starts of it. What would change the loss curve, what a key of ours sets and what
would have no effect is refused before anything starts. `native/torchtitan.json` in the run directory shows what TorchTitan received.

## Passed through
"""

OURS = """\
## Set by a key of ours

All fields of `optimizer`, `lr_scheduler`, `dataloader`, `tokenizer`, `validator` and `model_spec` are, save those above.
"""


def native_page() -> str:
    """The whole page as Markdown."""
    return "\n".join([INTRODUCTION, *_tables()]).rstrip() + "\n"


def _tables() -> Iterator[str]:
    rows = [(f"`{name}`", allowed(FieldInfo.from_annotation(option.type)), option.help) for name, option in OPTIONS.items()]
    yield table(("option", "takes", "meaning"), rows)
    yield OURS
    yield table(("option", "is set by"), [(f"`{name}`", owner) for name, owner in OWNED.items()])
    yield "## Refused\n"
    yield table(("option", "because it"), [(f"`{name}`", reason) for name, reason in REFUSED.items()])
