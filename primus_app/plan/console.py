"""rich's console for pages that may be piped: a reader that leaves early is no error; and tables on narrow terminals."""

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table


class PageConsole(Console):
    """Leaves a closed pipe to the door, which ends in 0; rich itself would end the program in 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


ANY_WIDTH = 10_000


class _Wide:
    """A table of its own width: Console.print takes no width beyond the terminal's."""

    def __init__(self, table: Table, width: int) -> None:
        self._table, self._width = table, width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self._table, options.update_width(self._width))


def print_table(console: Console, table: Table) -> None:
    """Print ``table`` no narrower than its longest words: rich would break numbers in two, a terminal wraps whole lines."""
    options = console.options.update_width(ANY_WIDTH)
    for column in table.columns:  # Left alone, rich narrows the widest column first, whatever stands in it.
        cells = [Measurement.get(console, options, cell).minimum for cell in (column.header, *column.cells) if cell]
        column.min_width = max(cells, default=0)
    needed = Measurement.get(console, options, table).minimum
    console.print(_Wide(table, max(console.width, needed)), crop=False)
