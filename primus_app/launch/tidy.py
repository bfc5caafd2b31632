"""Clearing up what a killed attempt has left in a run directory, before the next one writes there."""

import logging
import sys
from itertools import chain

from primus_app.run.checkpoints import remove_unfinished
from primus_app.run.directory import RunDirectory
from primus_app.run.events import Event, append_event, mend_events
from primus_app.run.files import TEMPORARY_PREFIX, explain_os_errors

logger = logging.getLogger(__name__)

PLACES = ("", "native/", "attempts/*/")
"""Where small files are replaced as a whole, and a kill may leave the unfinished one."""


def tidy_up(run: RunDirectory, attempt: int) -> None:
    """Cut a torn event, delete half-written files and checkpoints; only for the process that holds the run, before it starts ranks.

    metrics.jsonl is mended by its writer, which knows from which step the curve goes on.
    """
    mend_events(run)
    with explain_os_errors(run.path, "clearing up after the last start"):
        for path in chain.from_iterable(run.path.glob(f"{place}{TEMPORARY_PREFIX}*") for place in PLACES):
            path.unlink(missing_ok=True)
    drop_unfinished(run, attempt)


def drop_unfinished(run: RunDirectory, attempt: int) -> None:
    """Delete checkpoints that were not finished, and say so: in the log, as an event and on the terminal."""
    with explain_os_errors(run.checkpoints_dir, "clearing up unfinished checkpoints"):
        steps = remove_unfinished(run)
    for step in steps:
        logger.warning("checkpoint step-%d was not finished and has been deleted", step)
        append_event(run, Event.CHECKPOINT_DELETED, attempt=attempt, step=step)
        print(f"note: checkpoint step-{step} was not finished and has been deleted", file=sys.stderr, flush=True)
