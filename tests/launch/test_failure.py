"""Which rank is called the cause, with real error files."""

import json
import os
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from primus_app.launch.failure import first_failure

NOWHERE = "/nowhere/error.json"


def failure(exit_code: int, error: Path | None = None, message: str = "", time: float = 0) -> ProcessFailure:
    """As elastic makes it; ``error`` is written as its error handler writes it."""
    if error is not None:
        content = {"message": {"message": message, "extraInfo": {"py_callstack": "", "timestamp": str(int(time))}}}
        error.write_text(json.dumps(content))
        os.utime(error, (time, time))
    return ProcessFailure(local_rank=0, pid=1, exitcode=exit_code, error_file=str(error or NOWHERE))


def test_a_killed_rank_comes_before_the_echo_of_the_others(tmp_path: Path) -> None:
    """The others' connections broke a moment later, but elastic notices them with the time of their file, which is earlier."""
    echo = failure(1, tmp_path / "0.json", "RuntimeError: Connection closed by peer", 1000.0)
    first = first_failure([(0, echo), (1, failure(-9))])
    assert first.rank == 1
    assert first.message.startswith("killed by SIGKILL (signal 9)")


def test_the_earliest_error_is_the_cause_also_within_one_second(tmp_path: Path) -> None:
    late = failure(1, tmp_path / "0.json", "RuntimeError: Connection closed by peer", 1000.9)
    early = failure(1, tmp_path / "1.json", "ValueError: bad batch", 1000.2)
    first = first_failure([(0, late), (1, early)])
    assert (first.rank, first.message) == (1, "ValueError: bad batch")


def test_a_rank_ended_by_us_counts_only_by_its_time(tmp_path: Path) -> None:
    """SIGTERM is what the agent itself sends to the others once one has failed."""
    error = failure(1, tmp_path / "1.json", "ValueError: bad batch", 1000.0)
    assert first_failure([(0, failure(-15)), (1, error)]).rank == 1


def test_a_rank_that_left_nothing_is_said_so() -> None:
    assert first_failure([(3, failure(7))]).message == "ended with exit code 7 and left no error of its own"
