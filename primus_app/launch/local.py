"""The local launcher: this machine is a cluster of one node."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

from primus_app.config.errors import ExitCode, UserError
from primus_app.launch.watch import watch
from primus_app.run.directory import RunDirectory
from primus_app.run.lock import RunLock
from primus_app.run.status import State, Status, read_status, write_status

ENDINGS = (State.COMPLETED, State.FAILED, State.PREEMPTED, State.CANCELLED)


class Forwarder:
    """Passes the signals that end a program on to the node agent; a second one kills it."""

    def __init__(self, agent: subprocess.Popen[bytes]) -> None:
        self._agent = agent
        self._count = 0

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._forward)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            print("\nstopping the ranks (once more kills them)", file=sys.stderr)
            self._agent.send_signal(number)
        else:
            self._agent.kill()


def run_local(run: RunDirectory, attempt: int, steps: int, lock: RunLock) -> ExitCode:
    """Start the node agent, show what happens until it ends, and answer how it ended."""
    command = [sys.executable, "-m", "primus_app.launch.agent", str(run.path), str(attempt)]
    agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[lock.fileno()], env=_agent_environment())
    Forwarder(agent).install()
    watch(run, attempt, steps, lambda: agent.poll() is None)
    code = agent.wait()
    status = read_status(run)
    if status is None or status.attempt != attempt or status.state not in ENDINGS:
        cause = f"the node agent was killed by signal {-code}" if code < 0 else f"the node agent ended with code {code}"
        log = str(run.attempts_dir / str(attempt) / "agent.log")
        failed = Status(state=State.FAILED, attempt=attempt, cause=cause, log=log, exit_code=int(ExitCode.TRAINING_FAILED))
        with suppress(UserError):  # The agent has said why; this is the disk refusing once more.
            write_status(run, failed)
        return ExitCode(code) if code in list(ExitCode) and code else ExitCode.TRAINING_FAILED
    return ExitCode(status.exit_code if status.exit_code is not None else code)


def _agent_environment() -> dict[str, str]:
    """This environment, in which the agent finds the same primus_app from any folder."""
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
