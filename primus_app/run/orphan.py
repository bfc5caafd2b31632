"""No process outlives the one that started it, even when that one is killed with -9. Imports nothing slow."""

import ctypes
import os
import signal
import sys
import threading

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


def forks_die_with_parent() -> None:
    """Have every process that the main thread of this one forks from now on end with it, and theirs with them.

    Linux tells a child of the end of the thread that it was forked by, so that forks of other threads are left alone.
    """
    os.register_at_fork(before=_Fork.begin, after_in_child=_Fork.end)


class _Fork:
    """Who forks; a child finds it in its copy of the memory."""

    parent: int | None = None

    @classmethod
    def begin(cls) -> None:
        cls.parent = os.getpid() if threading.current_thread() is threading.main_thread() else None

    @classmethod
    def end(cls) -> None:
        if cls.parent is not None:
            die_with_parent(cls.parent)
