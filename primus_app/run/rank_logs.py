"""The log files of one process: debug.log, info.log, warning.log, error.log, each with its level and everything above."""

import logging
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Line(logging.Formatter):
    """``2026-11-30T21:00:00.123Z INFO rank 0 some.logger: message``, in UTC."""

    converter = staticmethod(time.gmtime)

    def __init__(self, origin: str) -> None:
        super().__init__(f"%(asctime)s.%(msecs)03dZ %(levelname)s {origin} %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")


def open_logs(folder: Path, level: str, rank: int) -> None:
    """Send everything that is logged in this process, by any library, to ``folder``; warnings and uncaught exceptions too.

    Each line is on disk as soon as it is written, so that a kill loses none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _install([_file(folder / f"{name}.log", number, f"rank {rank}") for name, number in LEVELS.items()], LEVELS[level])


def open_log_file(file: Path, level: str, origin: str) -> None:
    """The same into one file, for a process that is not a rank."""
    file.parent.mkdir(parents=True, exist_ok=True)
    _install([_file(file, logging.DEBUG, origin)], LEVELS[level])


def _file(path: Path, level: int, origin: str) -> logging.Handler:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setLevel(level)
    handler.setFormatter(_Line(origin))
    return handler


def _install(handlers: list[logging.Handler], level: int) -> None:
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # A full disk loses lines; it must not also flood the terminal.
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("uncaught").error("uncaught %s", kind.__name__, exc_info=(kind, error, trace))
    sys.__excepthook__(kind, error, trace)
