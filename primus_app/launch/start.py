"""The first lines of the node agent's and the ranks' processes: tied to their parent before anything slow is imported."""

import logging
import os
import signal
import sys
from typing import NoReturn

from primus_app.run.orphan import die_with_parent


def main(role: str, parent: str, *arguments: str) -> int:
    """Become the ``agent`` or the ``rank`` that process ``parent`` has started."""
    if role == "agent":
        # Held back until the agent can account for it.
        die_with_parent(int(parent), signal.SIGTERM)
        from primus_app.launch.agent import main as run_agent

        return run_agent(*arguments)
    die_with_parent(int(parent))
    from primus_app.launch.rank import main as run_rank

    run_rank(*arguments)
    return _leave()


def _leave() -> NoReturn:
    """End a rank that has closed everything. An ordinary exit takes the interpreter apart while threads of torch still want it, which
    every now and then aborts a process that has done all its work."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
