"""The arguments as text for a shell, and what Megatron-LM alone does otherwise than this program."""

import shlex
from collections.abc import Sequence

from primus_app.backends.megatron.pretrain.table import Argument


def as_text(found: Sequence[Argument]) -> str:
    """One argument a line, each line but the last going on in the next, to be put after a command."""
    return " \\\n".join(shlex.join([name, *values]) for name, values in found) + "\n"
