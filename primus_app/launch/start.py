"""The first lines of the node agent's and the ranks' processes: tied to their parent before anything slow is imported."""

import signal
import sys

from primus_app.launch.orphan import die_with_parent


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
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
