"""rich's console for pages that may be piped: a reader that leaves early is no error."""

from rich.console import Console


class PageConsole(Console):
    """Leaves a closed pipe to the door, which ends in 0; rich itself would end the program in 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
