"""No process outlives the one that started it, even when that one is killed with -9. Imports nothing slow."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl(2): the signal that a process gets when its parent dies."""


def die_with_parent(parent: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send ``death_signal`` to this process when process ``parent`` ends; end now if it has ended already.

    Does nothing where there is no Linux.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(death_signal))
    if os.getppid() != parent:
        os._exit(1)
