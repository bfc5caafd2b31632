"""Where Megatron's checkpoint writers leave their results: in a process forked from the rank, which dies with it."""

import os
from types import ModuleType
from typing import Any

from primus_app.backends.megatron.upstream import upstream
from primus_app.backends.megatron.versions import UPSTREAM
from primus_app.backends.patches import Patch
from primus_app.run.orphan import die_with_parent

WRITER_QUEUE_ID = "megatron-writer-queue"
NAMES = ("_get_write_results_queue", "get_write_results_queue")
"""Until 0.16, and from 0.17 on."""

TARGET = "megatron.core.dist_checkpointing.strategies.filesystem_async._get_write_results_queue"


def apply_writer_queue() -> None:
    """The same queue, one for each rank, from a process that needs no imports."""
    module = _writer()
    names = [name for name in NAMES if hasattr(module, name)]
    if not names or not hasattr(module, "_results_queue"):
        raise RuntimeError(f"{WRITER_QUEUE_ID}: {TARGET} is gone.")
    module.__dict__[names[0]] = _queue


def _queue(mp_mode: str = "spawn") -> Any:
    module = _writer()
    if module.__dict__["_results_queue"] is None:
        from multiprocessing import get_context
        from multiprocessing.managers import SyncManager

        manager = SyncManager(ctx=get_context("fork"))
        manager.start(initializer=die_with_parent, initargs=(os.getpid(),))
        module.__dict__["_primus_manager"] = manager  # Its process ends when nobody holds it.
        module.__dict__["_results_queue"] = manager.Queue()
    return module.__dict__["_results_queue"]


def _writer() -> ModuleType:
    return upstream("megatron.core.dist_checkpointing.strategies.filesystem_async")


WRITER_QUEUE = Patch(
    id=WRITER_QUEUE_ID,
    reason="Each rank starts a second Python that imports the main module again, which takes seconds and outlives a rank that is killed.",
    upstream=UPSTREAM,
    target=TARGET,
    condition="always",
    is_needed=lambda: True,
    apply=apply_writer_queue,
)
