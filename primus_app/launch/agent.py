"""The node agent: prepares the data, starts one rank process per device through torch's elastic agent, and accounts for their end."""

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from json import JSONDecodeError
from pathlib import Path
from types import FrameType
from typing import Any

from primus_app.backends.base import load_backend
from primus_app.backends.stored_folder import engine_of, is_converted
from primus_app.config.errors import ExitCode, UserError
from primus_app.config.schema import Config
from primus_app.launch.environment import export, rank_environment
from primus_app.launch.preparation import PreparationLines, told_about_examples
from primus_app.launch.signals import ENDING_SIGNALS, state_of
from primus_app.launch.tidy import drop_unfinished, tidy_up
from primus_app.run.checkpoints import newest_checkpoint
from primus_app.run.directory import RunDirectory
from primus_app.run.events import Event, append_event
from primus_app.run.files import json_text, write_atomic
from primus_app.run.metrics import MetricsWriter
from primus_app.run.rank_logs import open_log_file
from primus_app.run.reserve import Reserve, full_disk_note
from primus_app.run.saved_step import is_run_or_step
from primus_app.run.snapshot import read_config, record_data_digest
from primus_app.run.status import State, Status, write_status

logger = logging.getLogger(__name__)

SHUTDOWN_S = 5
"""How long ranks are given to end after a signal before they are killed."""


class Stopped(Exception):  # noqa: N818 — a request, not an error
    """A signal asked the run to end."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(f"stopped by {self.signal.name}")


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended; ``rank`` and ``log`` say where to look when it failed."""

    state: State
    code: ExitCode
    cause: str | None = None
    rank: int | None = None
    log: str | None = None


def main(run_path: str, attempt: str) -> int:
    """Carry out attempt ``attempt`` of the run at ``run_path`` on this node; the exit code tells how it ended."""
    for ending in ENDING_SIGNALS:
        signal.signal(ending, _stop)
    run, number = RunDirectory(Path(run_path)), int(attempt)
    folder = run.attempts_dir / attempt
    config = read_config(folder / "config.yaml")
    open_log_file(folder / "agent.log", config.logging.level, "agent")
    reserve = Reserve(folder)
    outcome = _attempt(run, number, folder, config)
    for ending in ENDING_SIGNALS:
        signal.signal(ending, signal.SIG_IGN)
    if outcome.state is State.FAILED:
        # A disk that has filled up is freed of what could not be finished; after a signal there may be no time.
        with suppress(UserError):
            drop_unfinished(run, number)
    reserve.give_up()
    _account(run, number, outcome)
    return int(outcome.code)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def _attempt(run: RunDirectory, number: int, folder: Path, config: Config) -> Outcome:
    from torch.distributed.elastic.multiprocessing import SignalException

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)  # The launcher started this process with them held back.
        tidy_up(run, number)
        _prepare_data(run, folder, config)
        _check_weights(run, config)
        return _run_ranks(run, number, folder, config)
    except UserError as error:
        print("\n".join(f"error: {problem}" for problem in error.problems), file=sys.stderr)
        return Outcome(State.FAILED, error.code, str(error))
    except (Stopped, SignalException) as error:
        name = error.signal.name if isinstance(error, Stopped) else signal.Signals(error.sigval).name
        append_event(run, Event.SIGNAL, attempt=number, signal=name)
        return Outcome(State(state_of(signal.Signals[name])), ExitCode.STOPPED, f"stopped by {name}")
    except JSONDecodeError:
        # Elastic reads the file that a rank writes its error to; a full disk leaves it empty.
        cause = "a rank ended with an error that it could not write down" + full_disk_note(run.path)
        return Outcome(State.FAILED, ExitCode.TRAINING_FAILED, cause, log=str(run.log_dir(0, config.training.stage) / "info.log"))
    except Exception as error:
        logger.exception("the node agent failed")
        cause = f"the node agent failed: {error}{full_disk_note(run.path)}"
        return Outcome(State.FAILED, ExitCode.TRAINING_FAILED, cause, log=str(folder / "agent.log"))


def _prepare_data(run: RunDirectory, folder: Path, config: Config) -> None:
    """Tokenise once into the cache, with a progress bar, and hold the content against what the run started with."""
    from primus_app.data.prepare import prepare

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = _with_progress(
            lambda progress: prepare(
                config.data,
                vocab_size=config.model.vocab_size,
                seq_len=config.training.seq_len,
                global_batch_size=config.training.global_batch_size,
                evaluates=config.training.eval_every > 0,
                progress=progress,
            )
        )
    record_data_digest(run, data.digest)
    for line in told_about_examples(data):
        print(line, file=sys.stderr, flush=True)
    write_atomic(folder / "data.json", json_text(data.to_dict()))
    append_event(run, Event.DATA_PREPARED, attempt=int(folder.name), digest=data.digest)


def _check_weights(run: RunDirectory, config: Config) -> None:
    """Hold the checkpoint that a new run starts from against its own index, before ranks are started."""
    folder = Path(config.checkpoint.load) if config.checkpoint.load else None
    if folder is None or not (is_run_or_step(folder) or is_converted(folder)) or newest_checkpoint(run) is not None:
        return
    if problems := load_backend(engine_of(folder)).check_weights(folder):
        raise UserError(problems)


def _with_progress(work: Callable[[Callable[[int, int], None]], Any]) -> Any:
    """Show a bar on the terminal, lines elsewhere, as soon as there is something to wait for."""
    if not sys.stderr.isatty():
        return work(PreparationLines().tell)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("preparing data"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("data", total=None, visible=False)
        return work(lambda done, total: bar.update(task, completed=done, total=total, visible=True))


def _run_ranks(run: RunDirectory, number: int, folder: Path, config: Config) -> Outcome:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from primus_app.launch.agent_logs import AttemptLogs
    from primus_app.launch.failure import first_failure

    _hush_elastic()
    ranks = config.cluster.devices_per_node
    assert isinstance(ranks, int)
    given = export(rank_environment(config, ranks))
    write_atomic(folder / "rank_environment.json", json_text(given))
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=f"{run.path.name}-{number}",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=AttemptLogs(folder),
        shutdown_timeout=SHUTDOWN_S,
    )
    write_status(run, Status(state=State.RUNNING, attempt=number))
    append_event(run, Event.STARTED, attempt=number, ranks=ranks)
    try:
        elastic_launch(launch, sys.executable)("-m", "primus_app.launch.start", "rank", str(os.getpid()), str(run.path), str(number))
    except ChildFailedError as error:
        first = first_failure(error.failures.items())
        cause = first.message + full_disk_note(run.path)
        log = _telling_log(run.log_dir(first.rank, config.training.stage), folder / f"rank-{first.rank}")
        return Outcome(State.FAILED, ExitCode.TRAINING_FAILED, cause, first.rank, str(log))
    return Outcome(State.COMPLETED, ExitCode.DONE)


def _telling_log(logs: Path, printed: Path) -> Path:
    """The file that says most about a rank's end: its errors, else what it printed, else its log."""
    telling = (logs / "error.log", printed / "stderr.log")
    return next((log for log in telling if log.exists() and log.stat().st_size), logs / "info.log")


def _hush_elastic() -> None:
    """torch's loggers have handlers of their own that write to the terminal; they reach agent.log through the root."""
    for name in ("torch", *(known for known in logging.root.manager.loggerDict if known.startswith("torch."))):
        log = logging.getLogger(name)
        log.handlers.clear()
        log.propagate = True


def _account(run: RunDirectory, number: int, outcome: Outcome) -> None:
    """The last word of the attempt, in status.json, events.jsonl and the attempt's own folder.

    What cannot be written is told on the terminal; it never hides the cause.
    """
    try:
        _write_account(run, number, outcome)
    except (OSError, UserError) as error:
        place = f" (rank {outcome.rank}; {outcome.log})" if outcome.rank is not None else ""
        print(f"error: {outcome.cause or outcome.state}{place}\nerror: this end could not be written down: {error}", file=sys.stderr)


def _write_account(run: RunDirectory, number: int, outcome: Outcome) -> None:
    with MetricsWriter(run) as metrics:
        step = metrics.last_step
    status = Status(
        state=outcome.state,
        attempt=number,
        cause=outcome.cause,
        rank=outcome.rank,
        log=outcome.log,
        exit_code=int(outcome.code),
        step=step,
    )
    write_status(run, status)
    write_atomic(run.attempts_dir / str(number) / "result.json", json_text({**asdict(status), "agent_pid": os.getpid()}))
    append_event(run, Event(outcome.state), attempt=number, cause=outcome.cause, rank=outcome.rank)
