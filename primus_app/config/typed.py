"""A setting as it can be pasted: quoted for Hydra where its value is odd, and that for the shell."""

import re
import shlex

from primus_app.config.compose import quoted

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*")
"""Text that neither Hydra nor the shell reads as anything else."""
_WORDS = ("true", "false", "null", "nan", "inf")


def typed(key: str, value: object) -> str:
    """``key=value`` for a command line; ``value`` is text or a path."""
    text = str(value)
    return f"{key}={text}" if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else shlex.quote(f"{key}={quoted(text)}")
