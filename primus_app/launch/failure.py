"""Which rank failed first, and how to say it."""

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

EMPTY = (None, "", "<NONE>", "<N/A>")
"""What elastic puts where a rank left no message."""


@dataclass(frozen=True)
class RankFailure:
    """The end of one rank: its own words, when it has any."""

    rank: int
    exit_code: int
    message: str
    time: float


def first_failure(failures: Iterable[tuple[int, ProcessFailure]]) -> RankFailure:
    """The cause among ``failures`` (rank, what elastic saw).

    A rank killed from outside leaves no error of its own, and the errors of the others are its echo: their connections
    broke. So such a rank comes first; otherwise the earliest error file.
    """
    found = [_rank_failure(rank, failure) for rank, failure in failures]
    return min(found, key=lambda failure: (not _killed(failure.exit_code), failure.time))


def _killed(exit_code: int) -> bool:
    """By none of the signals that a process sends itself or gets from the agent as an echo of another's end."""
    return exit_code < 0 and -exit_code not in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT)


def _rank_failure(rank: int, failure: ProcessFailure) -> RankFailure:
    error_file = Path(failure.error_file)
    when = error_file.stat().st_mtime if error_file.exists() else float(failure.timestamp)
    return RankFailure(rank, failure.exitcode, _message(failure), when)


def _message(failure: ProcessFailure) -> str:
    if failure.exitcode < 0 and failure.error_file_data.get("message") in EMPTY:
        return f"killed by {signal.Signals(-failure.exitcode).name} (signal {-failure.exitcode}){_hint(-failure.exitcode)}"
    if failure.error_file_data.get("message") in EMPTY:
        return f"ended with exit code {failure.exitcode} and left no error of its own"
    message = failure.message
    return str(message.get("message", message)) if isinstance(message, dict) else str(message)


def _hint(number: int) -> str:
    return ": by hand, or by the system because memory ran out" if number == signal.SIGKILL else ""
