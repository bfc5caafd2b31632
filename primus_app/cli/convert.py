"""The verb convert: weights of a run, or of a Hugging Face folder, in the format of another program; plain arguments and no Hydra."""

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from primus_app.backends.converted_folder import default_output, write_folder
from primus_app.backends.given_weights import SOURCES, GivenWeights, find_given, is_model_folder
from primus_app.backends.output_folder import check_output, clear_leftovers
from primus_app.cli.arguments import OWN_FLAGS
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.config.typed import typed

FORMATS = {
    "hf": "a Hugging Face folder",
    "torchtitan": "a checkpoint of TorchTitan",
    "megatron": "a distributed checkpoint of megatron-core",
}
DTYPES = ("fp32", "bf16")
USAGE = "primus convert SRC [DST] --to hf|torchtitan|megatron [--step N] [--dtype fp32|bf16]"


def run_convert(argv: Sequence[str]) -> ExitCode:
    """Write the folder and tell where it is.

    Raises:
        UserError: with all mistakes in the arguments; code 3 where there is no room.
    """

    arguments = _parse(argv)
    problems = list(_wrong_values(arguments))
    given: GivenWeights | None = None
    output = _output(arguments)
    if arguments.source:
        number = int(arguments.step) if arguments.step is not None and arguments.step.isdecimal() else None
        source = Path(arguments.source).expanduser().absolute()
        has_place = True
        try:
            has_place = not is_model_folder(source)
            given = find_given(source, number)
        except UserError as error:
            problems += error.problems
        except OSError as error:
            problems.append(Problem("SRC", f"{source}: {error.strerror}", (f"give {SOURCES}",)))
        if output is None and arguments.destination is None and arguments.output is None and not has_place:
            problems.append(Problem("DST", f"is missing: {source} is no run, in which it would have a place", (USAGE,)))
    if output is None and given is not None and arguments.to in FORMATS:
        output = default_output(given, arguments.to)
    problems += check_output(output) if output else []
    if problems or given is None or output is None:
        raise UserError(problems)
    from primus_app.backends.conversion import keep_freed_memory

    for folder in clear_leftovers(output):
        print(f"removed {folder}, which a killed conversion had left", file=sys.stderr)
    keep_freed_memory()
    with _interrupted_by_signals(), _progress() as tell:
        num_bytes = write_folder(given, arguments.to, output, arguments.dtype, tell)
    lines = (
        ("converted", given.label),
        ("to", f"{FORMATS[arguments.to]}, {output}  ({num_bytes / 1e6:,.1f} MB of weights{_types(given, arguments)})"),
        ("train on it", f"model=hf {typed('model.path', output)} {typed('checkpoint.load', output)}"),
    )
    print("\n".join(f"{name:<16}{text}" for name, text in lines))
    return ExitCode.DONE


def _types(given: GivenWeights, arguments: Namespace) -> str:
    known = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}
    return f", {arguments.dtype or ' and '.join(sorted({known[dtype] for dtype in given.dtypes.values()}))}"


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end it as Ctrl-C does, with nothing left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # What is ignored stays so: nohup means that a terminal may close.
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("converting"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("weights", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _parse(argv: Sequence[str]) -> Namespace:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("source", nargs="?")
    parser.add_argument("destination", nargs="?")
    for flag in ("--to", "--step", "--output", "--dtype"):
        parser.add_argument(flag)

    def refuse(message: str) -> NoReturn:
        raise UserError(Problem("convert", message, (USAGE,)))

    parser.error = refuse  # type: ignore[method-assign]
    arguments, rest = parser.parse_known_args(list(argv))
    # What follows an unknown flag is its value, which may have been taken for DST.
    unknown = [word for word in rest if word.startswith("-")]
    settings = [word for word in (arguments.source, arguments.destination, *rest) if word and _is_setting(word)]
    if wrong := unknown or settings or rest:
        raise UserError([Problem(word, "convert takes no such argument", _advice(word)) for word in wrong])
    return arguments


def _is_setting(word: str) -> bool:
    """Whether it looks like one of Hydra's key=value and names nothing that is there."""
    return "=" in word and "/" not in word.partition("=")[0] and not Path(word).expanduser().exists()


def _output(arguments: Namespace) -> Path | None:
    given = arguments.destination if arguments.destination is not None else arguments.output
    return Path(given).expanduser().absolute() if given else None


def _advice(word: str) -> tuple[str, ...]:
    return (*did_you_mean(nearest(word.partition("=")[0], OWN_FLAGS["convert"])), USAGE)


def _wrong_values(arguments: Namespace) -> list[Problem]:
    problems = []
    if arguments.source is None:
        problems.append(Problem("convert", "needs the weights to convert", (f"give {SOURCES}", USAGE)))
    if arguments.destination is not None and arguments.output is not None:
        fix = ("leave one out: --output DIR is another way to say DST",)
        problems.append(Problem("--output", f"is given, and {arguments.destination} too", fix))
    empty = {"SRC": arguments.source, "DST": arguments.destination, "--output": arguments.output}
    problems += [Problem(name, "is empty", (f"name a folder: {USAGE}",)) for name, value in empty.items() if value == ""]
    if arguments.to is None:
        problems.append(Problem("--to", "is missing", tuple(f"--to {name} writes {what}" for name, what in FORMATS.items())))
    elif arguments.to not in FORMATS:
        problems.append(_unknown("--to", arguments.to, list(FORMATS)))
    if arguments.dtype is not None and arguments.dtype not in DTYPES:
        problems.append(_unknown("--dtype", arguments.dtype, DTYPES))
    if arguments.step is not None and not arguments.step.isdecimal():
        problems.append(Problem("--step", f"{arguments.step!r} is no step", ("give the number of a saved step: --step 200",)))
    return problems


def _unknown(flag: str, value: str, known: Sequence[str]) -> Problem:
    near = did_you_mean(f"{flag} {word}" for word in nearest(value, known, cutoff=0.5))
    return Problem(flag, f"{value!r} is not known", (*near, f"one of {', '.join(known)}"))
