"""The verb convert: a saved step of a run into a format of other programs; takes plain arguments and no Hydra."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from primus_app.cli.arguments import OWN_FLAGS
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest
from primus_app.config.typed import typed
from primus_app.run.saved_step import SavedStep, find_saved_step

FORMATS = ("hf",)
DTYPES = ("fp32", "bf16")
USAGE = "primus convert <run directory or step folder> --to hf [--step N] [--output DIR] [--dtype fp32|bf16]"


def run_convert(argv: Sequence[str]) -> ExitCode:
    """Write the folder and tell where it is.

    Raises:
        UserError: with all mistakes in the arguments; code 3 where there is no room.
    """
    from primus_app.backends.hf_folder import check_output, default_output, write_folder

    arguments = _parse(argv)
    problems = list(_wrong_values(arguments))
    step: SavedStep | None = None
    if arguments.source is not None:
        number = int(arguments.step) if arguments.step is not None and arguments.step.isdecimal() else None
        try:
            step = find_saved_step(Path(arguments.source).expanduser().absolute(), number, where=arguments.source)
        except UserError as error:
            problems += error.problems
    output = Path(arguments.output).expanduser().absolute() if arguments.output else default_output(step) if step else None
    problems += check_output(output) if output else []
    if problems or step is None or output is None:
        raise UserError(problems)
    num_bytes = write_folder(step, output, arguments.dtype)
    lines = (
        ("converted", f"{step.config.model.name}, step {step.step} of {step.run.path}"),
        ("to", f"{output}  ({num_bytes / 1e6:,.1f} MB of weights, {arguments.dtype})"),
        ("train on it", f"model=hf {typed('model.path', output)} {typed('checkpoint.load', output)}"),
    )
    print("\n".join(f"{name:<16}{text}" for name, text in lines))
    return ExitCode.DONE


def _parse(argv: Sequence[str]) -> Namespace:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("source", nargs="?")
    for flag in ("--to", "--step", "--output"):
        parser.add_argument(flag)
    parser.add_argument("--dtype", default=DTYPES[0])

    def refuse(message: str) -> NoReturn:
        raise UserError(Problem("convert", message, (USAGE,)))

    parser.error = refuse  # type: ignore[method-assign]
    arguments, rest = parser.parse_known_args(list(argv))
    # What follows an unknown flag is its value.
    if wrong := [word for word in rest if word.startswith("-")] or rest:
        raise UserError([Problem(word, "convert takes no such argument", _advice(word)) for word in wrong])
    return arguments


def _advice(word: str) -> tuple[str, ...]:
    return (*did_you_mean(nearest(word.partition("=")[0], OWN_FLAGS["convert"])), USAGE)


def _wrong_values(arguments: Namespace) -> list[Problem]:
    problems = []
    if arguments.source is None:
        problems.append(Problem("convert", "needs the run directory, or a step folder in its checkpoints", (USAGE,)))
    if arguments.to is None:
        problems.append(Problem("--to", "is missing", (f"--to {FORMATS[0]} writes a Hugging Face folder",)))
    elif arguments.to not in FORMATS:
        problems.append(_unknown("--to", arguments.to, FORMATS))
    if arguments.dtype not in DTYPES:
        problems.append(_unknown("--dtype", arguments.dtype, DTYPES))
    if arguments.step is not None and not arguments.step.isdecimal():
        problems.append(Problem("--step", f"{arguments.step!r} is no step", ("give the number of a saved step: --step 200",)))
    return problems


def _unknown(flag: str, value: str, known: Sequence[str]) -> Problem:
    near = did_you_mean(f"{flag} {word}" for word in nearest(value, known, cutoff=0.5))
    return Problem(flag, f"{value!r} is not known", near or (f"one of {', '.join(known)}",))
