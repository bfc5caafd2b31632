"""What is wrong with the records of all files: each kind of mistake once for a file, at its first place, with the number of the others."""

from primus_app.config.errors import Problem
from primus_app.data.text.files import MOST_PROBLEMS

ENOUGH = 1000
"""Wrong records after which no more are looked for."""


class Mistakes:
    """Collects problems in the order in which they are met."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Problem] = {}
        self._more: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def enough(self) -> bool:
        """Whether the rest of the records need not be looked at."""
        return len(self._found) >= MOST_PROBLEMS or len(self._found) + sum(self._more.values()) >= ENOUGH

    def add(self, problem: Problem, kind: str | None = None) -> None:
        """``kind`` is what ``problem`` has in common with others of its file, None where it is one of its own."""
        key = problem.where, problem.what if kind is None else kind
        if key in self._found:
            self._more[key] = self._more.get(key, 0) + 1
        else:
            self._found[key] = problem

    def problems(self) -> list[Problem]:
        """All of them, for the user."""
        return [self._told(key, problem) for key, problem in self._found.items()]

    def _told(self, key: tuple[str, str], problem: Problem) -> Problem:
        more = self._more.get(key, 0)
        if not more:
            return problem
        note = f"{'at least ' if self.enough else ''}{more} more like it in this file"
        return Problem(problem.where, problem.what, (note, *problem.fix))
