"""The errors as tables: on a terminal, and in docs/estimates.md between two marks."""

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

from published_errors import LIMITS, Error, holds, summary
from published_ranking import LEAST_TAU, LIMITED, mean_tau, rankings

DOCS = Path(__file__).resolve().parents[2] / "docs/estimates.md"
PICTURE = DOCS.parent / "images/estimates.svg"
WORDS = ("what", "source", "device", "reason", "ranking within one source", "limit", "holds")
"""Columns of words, which start at the left."""
BEGIN, END = "<!-- written by scripts/bench/estimates --docs -->", "<!-- end -->"


def show(errors: list[Error], reasons: Counter[str], *, each_row: bool) -> None:
    """All tables on the terminal, and each run where asked for."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 140)
    for title, header, rows in tables(errors, reasons):
        table = Table(title=title, title_justify="left")
        for name in header:
            table.add_column(name, justify="left" if name in WORDS else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table, highlight=False)
    if each_row:
        for each in errors:
            name = f"{each.device:<8}{each.model[0]:<24}{each.source[:50]}"
            console.print(f"{each.kind:<20}{each.error:+8.1%}  {each.published:12.4g}  {name}", highlight=False)


def in_docs(text: str, errors: list[Error], reasons: Counter[str]) -> str:
    """The document with its tables made anew."""
    parts = []
    for title, header, rows in tables(errors, reasons):
        lines = [header, ["---" if name in WORDS else "---:" for name in header], *rows]
        parts.append(f"{title}:\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines))
    block = f"{BEGIN}\n" + "\n\n".join(parts) + f"\n{END}"
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, text, flags=re.DOTALL)


Table = tuple[str, list[str], list[list[str]]]
"""Title, header, rows."""


def tables(errors: list[Error], reasons: Counter[str]) -> list[Table]:
    """Errors by kind, ranking, errors by source and device, and what is not modelled."""
    return [_kinds(errors), _ranking(errors), _sources(errors), _reasons(reasons)]


def _kinds(errors: list[Error]) -> Table:
    rows = []
    for kind, found in summary(errors).items():
        mean, worst = LIMITS[kind]
        limit = f"{mean:.0%}" + (f", worst {worst:.0%}" if worst else "")
        rows.append([kind, *_numbers(found), limit, "yes" if holds(kind, found) else "NO"])
    return "Predicted over published", ["what", "runs", "mean error", "worst", "bias", "limit", "holds"], rows


def _ranking(errors: list[Error]) -> Table:
    rows = []
    for name, by_source in rankings(errors).items():
        tau = mean_tau(by_source)
        limit = [f"{LEAST_TAU}", "yes" if tau >= LEAST_TAU else "NO"] if name == LIMITED else ["", ""]
        lowest = min(by_source, key=lambda source: by_source[source][1] if by_source[source][0] > 4 else 1.0)
        runs = sum(runs for runs, _ in by_source.values())
        rows.append([name, f"{len(by_source)}", f"{runs}", f"{tau:.2f}", f"{family(lowest)} {by_source[lowest][1]:.2f}", *limit])
    header = ["ranking within one source", "sources", "runs", "Kendall's tau", "worst of more than 4 runs", "limit", "holds"]
    return "Kendall's tau of step times, the mean over sources by their number of runs", header, rows


def _sources(errors: list[Error]) -> Table:
    groups: dict[tuple[str, str, str], list[Error]] = defaultdict(list)
    for each in errors:
        groups[each.kind, family(each.source), each.device].append(each)
    order = list(LIMITS)
    rows = [
        [kind, source, device, *_numbers(summary(group)[kind])]
        for (kind, source, device), group in sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0]))
    ]
    return "By source and device", ["what", "source", "device", "runs", "mean error", "worst", "bias"], rows


def _reasons(reasons: Counter[str]) -> Table:
    return "Not modelled", ["reason", "rows"], [[reason, str(number)] for reason, number in reasons.most_common()]


def family(source: str) -> str:
    """A source's name without the page of it."""
    words = source.split()
    if words[0] == "Modalities":
        return f"Modalities {words[1].rpartition('_')[2].removesuffix('.md')}"
    if found := re.search(r"Bridge.*\[(\d\d\.\d\d)", source):
        return f"Megatron-Bridge {found[1]}"
    return " ".join(words[:2]) if words[0] in ("arXiv", "SC21") else words[0]


def _numbers(found: dict[str, float]) -> tuple[str, ...]:
    return f"{found['runs']:.0f}", f"{found['mean']:.1%}", f"{found['worst']:+.1%}", f"{found['bias']:+.1%}"
