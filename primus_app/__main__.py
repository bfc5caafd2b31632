"""The door: help, verb, configuration; every end has an exit code and, for a user's mistake, one clear message."""

import errno
import logging
import os
import sys
from collections.abc import Sequence

from primus_app.config.errors import ExitCode, Problem, UserError, show_problems


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the returned number is the exit code."""
    logging.raiseExceptions = False  # Hydra logs its pages; a reader that leaves early is no error.
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except UserError as error:
        show_problems(error)
        return int(error.code)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return int(ExitCode.STOPPED)
    except BrokenPipeError:
        _close_output()
        return int(ExitCode.DONE)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        print(f"error: standard output: {error.strerror}", file=sys.stderr)
        _close_output()
        return int(ExitCode.UNFIT_MACHINE)


def _close_output() -> None:
    """Nobody reads on, or nothing more can be written: what is still buffered goes nowhere, without a second error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _require_folder() -> None:
    """Hydra, git and every relative path need the current folder."""
    try:
        os.getcwd()
    except FileNotFoundError:
        fix = ("cd to a folder that is there",)
        raise UserError(Problem("current folder", "has been deleted", fix), ExitCode.UNFIT_MACHINE) from None


def _run(argv: list[str]) -> int:
    from primus_app.cli.arguments import FILE_VERBS, parse_arguments, wants_help

    if "COMP_LINE" in os.environ:
        from primus_app.cli.completion import complete

        return complete()
    if wants_help(argv):
        from primus_app.cli.help import show_help

        return show_help(argv)
    if "--version" in argv:
        from primus_app import __version__

        print(f"primus_app {__version__}")
        return int(ExitCode.DONE)
    _require_folder()
    if argv[:1] and argv[0] in FILE_VERBS:
        from primus_app.cli.verbs import run_file_verb

        return run_file_verb(argv[0], argv[1:])
    arguments = parse_arguments(argv)
    if arguments.wants_hydra:
        from primus_app.cli.hydra_flags import answer

        return answer(arguments)
    from primus_app.cli.verbs import run_verb

    return run_verb(arguments)


if __name__ == "__main__":
    sys.exit(main())
