"""How this program was called, so that the commands in its advice can be typed as they stand."""

import os
import sys
from pathlib import Path


def program_name() -> str:
    """``PRIMUS_COMMAND`` where a script has set it, else ``primus`` or ``python -m primus_app``."""
    named = os.environ.get("PRIMUS_COMMAND")
    return named or ("python -m primus_app" if Path(sys.argv[0]).name == "__main__.py" else "primus")
