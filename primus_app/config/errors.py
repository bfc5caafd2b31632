"""A user's mistakes: what is wrong, where, what is allowed, what to do; and the exit code they end in."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """How the program ends; the same story as status.json."""

    DONE = 0
    BAD_REQUEST = 2
    UNFIT_MACHINE = 3
    TRAINING_FAILED = 4
    STOPPED = 5


@dataclass(frozen=True)
class Problem:
    """One mistake: ``where`` is a key, an override or a file; ``fix`` says what to do, one line each."""

    where: str
    what: str
    fix: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return "\n".join([head, *(f"  {line}" for line in self.fix)])


class UserError(Exception):
    """Ends the program with all ``problems`` shown and without a traceback."""

    def __init__(self, problems: Sequence[Problem] | Problem, code: ExitCode = ExitCode.BAD_REQUEST) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        self.code = code
        super().__init__("\n".join(str(problem) for problem in self.problems))


def show_problems(error: UserError) -> None:
    """All problems on standard error, the word error in red on a terminal."""
    label = "\033[1;31merror:\033[0m" if sys.stderr.isatty() else "error:"
    for problem in error.problems:
        print(f"{label} {problem}", file=sys.stderr)
