"""TorchTitan's part of docs/native-options.md, made from the tables: what may be passed through, and whose everything else is."""

from primus_app.backends.native.page import owned_table, passed_table, refused_table
from primus_app.backends.torchtitan.native.options import OPTIONS
from primus_app.backends.torchtitan.native.owned import OWNED, REFUSED

INTRODUCTION = """\
## TorchTitan

Options of torchtitan 0.3.0: `primus backend.native.compile.enable=true`. `native/torchtitan.json` in the run directory shows what it
received.
"""

OURS = """\
### Set by a key of ours

All fields of `optimizer`, `lr_scheduler`, `dataloader`, `tokenizer`, `validator` and `model_spec` are, save those above.
"""


def titan_part() -> list[str]:
    """Paragraphs of Markdown."""
    return [
        INTRODUCTION,
        "### Passed through\n",
        passed_table(OPTIONS),
        OURS,
        owned_table(OWNED),
        "### Refused\n",
        refused_table(REFUSED),
    ]
