"""Runs whose ranks are forked from one process that has imported the engines: all but the start of a process is the program's own.

Reads a line of JSON for each run, a list of overrides, and answers with a line: the exit code and what was said. For tests that hold
many layouts against one curve; how processes are started, watched and ended is tested elsewhere.
"""

import contextlib
import io
import json
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from primus_app.backends.base import load_backend
from primus_app.cli import training
from primus_app.config.compose import Request
from primus_app.config.errors import ExitCode, UserError
from primus_app.launch import agent
from primus_app.launch.devices import detect_devices
from primus_app.launch.environment import export, rank_environment
from primus_app.launch.tidy import tidy_up
from primus_app.run.snapshot import read_config
from primus_app.run.status import State


def import_engines() -> None:
    """What takes seconds in every rank; torchtitan has to meet its corrections first, megatron-core's come in each rank."""
    for patch in load_backend("torchtitan").patches():
        if patch.is_needed():
            patch.apply()
    import torch.utils.tensorboard  # noqa: F401

    import primus_app.backends.torchtitan.trainer
    import primus_app.backends.torchtitan.translate
    import primus_app.launch.rank  # noqa: F401


def run_forked(run: Any, attempt: int, steps: int, lock: Any) -> ExitCode:
    """Stands for the launcher and the node agent."""
    folder = run.attempts_dir / str(attempt)
    config = read_config(folder / "config.yaml")
    tidy_up(run, attempt)
    agent._prepare_data(run, folder, config)
    agent._check_weights(run, config)
    ranks = config.cluster.devices_per_node
    assert isinstance(ranks, int)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    children = [_fork(run, attempt, rank, world, config) for rank in range(ranks)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    outcome = agent.Outcome(State.COMPLETED, ExitCode.DONE)
    if any(codes):
        outcome = agent.Outcome(State.FAILED, ExitCode.TRAINING_FAILED, f"exit codes {codes}")
    agent._account(run, attempt, outcome)
    return outcome.code


def _fork(run: Any, attempt: int, rank: int, world: dict[str, str], config: Any) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.update(world, RANK=str(rank), LOCAL_RANK=str(rank))
        export(rank_environment(config, int(world["WORLD_SIZE"])))
        with (run.attempts_dir / str(attempt) / f"forged-{rank}.log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            from primus_app.launch.rank import main as run_rank

            run_rank(str(run.path), str(attempt))
            code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def answer(overrides: list[str]) -> dict[str, Any]:
    """Train one run; the exit code and everything that was said."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = training.record_and_run(training.check_training(Request(tuple(overrides)), detect_devices()))
    except UserError as error:
        code, _ = error.code, said.write(str(error))
    return {"code": int(code), "said": said.getvalue()}


def main() -> None:
    """Answer until there is no line any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Whatever a library prints is no answer.
    import_engines()
    training.run_local = run_forked
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
