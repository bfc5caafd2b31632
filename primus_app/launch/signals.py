"""The signals that end a run: Ctrl-C, a scheduler's or a user's kill, a closed terminal."""

import signal

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def state_of(number: int) -> str:
    """The word in status.json for a run that signal ``number`` has ended: a user cancels, everything else preempts."""
    return "cancelled" if number == signal.SIGINT else "preempted"
