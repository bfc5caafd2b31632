"""The local launcher: this machine is a cluster of one node."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from primus_app.config.errors import ExitCode, UserError
from primus_app.launch.signals import ENDING_SIGNALS, state_of
from primus_app.launch.watch import watch
from primus_app.run.directory import RunDirectory
from primus_app.run.events import Event, append_event
from primus_app.run.lock import RunLock
from primus_app.run.metrics import last_step
from primus_app.run.status import State, Status, read_status, write_status

ENDINGS = (State.COMPLETED, State.FAILED, State.PREEMPTED, State.CANCELLED)


class Forwarder:
    """Passes the signals that end a program on to the node agent; a second one kills it. ``first`` is the first one's number."""

    def __init__(self, agent: "subprocess.Popen[bytes]") -> None:
        self._agent = agent
        self.first: int | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """In place of the handlers that were there before, which come back."""
        before = {number: signal.signal(number, self._forward) for number in ENDING_SIGNALS}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            with suppress(OSError):
                print("\nstopping the ranks (once more kills them)", file=sys.stderr)
            self._agent.send_signal(number)
        else:
            self._agent.kill()


def run_local(run: RunDirectory, attempt: int, steps: int, lock: RunLock) -> ExitCode:
    """Start the node agent, show what happens until it ends, and answer how it ended."""
    command = [sys.executable, "-m", "primus_app.launch.start", "agent", str(os.getpid()), str(run.path), str(attempt)]
    # Blocked from here on, and in the agent until it can account for them, so that none is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[lock.fileno()], env=_agent_environment())
    forwarder = Forwarder(agent)
    with forwarder.installed():
        watch(run, attempt, steps, lambda: agent.poll() is None)
        code = agent.wait()
    status = read_status(run)
    if status is not None and status.attempt == attempt and status.state in ENDINGS:
        return ExitCode(status.exit_code if status.exit_code is not None else code)
    return _account_for_agent(run, attempt, code, forwarder.first)


def _account_for_agent(run: RunDirectory, attempt: int, code: int, stopped_by: int | None) -> ExitCode:
    """Write the end that the agent could not write itself."""
    if stopped_by is not None:
        end = ExitCode.STOPPED
        status = Status(State(state_of(stopped_by)), attempt, f"stopped by {signal.Signals(stopped_by).name}", exit_code=int(end))
    else:
        end = ExitCode(code) if code in list(ExitCode) and code else ExitCode.TRAINING_FAILED
        cause = f"the node agent was killed by signal {-code}" if code < 0 else f"the node agent ended with code {code}"
        status = Status(State.FAILED, attempt, cause, log=str(run.attempts_dir / str(attempt) / "agent.log"), exit_code=int(end))
    with suppress(UserError):  # The agent has said why; this is the disk refusing once more.
        write_status(run, replace(status, step=last_step(run)))
        append_event(run, Event(status.state), attempt=attempt, cause=status.cause, rank=None)
    return end


def _agent_environment() -> dict[str, str]:
    """This environment, in which the agent finds the same primus_app from any folder."""
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
