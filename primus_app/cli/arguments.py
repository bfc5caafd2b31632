"""The command line taken apart: verb, the verb's own flags, Hydra's flags, overrides."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from primus_app.cli.config_folder import folder_problems
from primus_app.config.compose import ENGINE_OPTIONS, Request, groups
from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest, nearest_keys

VERBS = {
    "train": "check the request, record it and train (the default)",
    "plan": "show layout, batch, parameters, FLOPs and memory, and what would not work; starts nothing",
    "tune": "find the fastest layouts that fit: primus tune model=llama3_70b hardware=mi300x cluster.nodes=8; starts nothing",
    "tune-hardware": "fit the constants of a device to finished runs, or a folder of them: primus tune-hardware RUN… [--output FILE.yaml]",
    "export": "print a configuration as arguments of Megatron-LM: primus export backend=megatron --to args",
    "convert": "weights of a run, or of a Hugging Face folder, for other programs: primus convert SRC [DST] --to hf|torchtitan|megatron",
    "import-primus": "tell an experiment of AMD's Primus as a command: import-primus FILE.yaml",
    "import-titan": "tell a TOML job file of TorchTitan as a command: import-titan FILE.toml",
}
"""Each verb and what it does."""

SECTIONS = ("training", "logging", "work_group", "user_name", "exp_name", "workspace")
"""Keys and sections that are no groups."""

OWN_FLAGS = {
    "train": {},
    "plan": {"--json": "print the plan as JSON", "--html": "write the plan with pictures to a file too: --html plan.html"},
    "tune": {"--json": "print the layouts as JSON"},
    "tune-hardware": {"--output": "a new file for conf/hardware, or for a folder hardware of your own"},
    "export": {"--to": "the format: args, one argument a line, to be put after a command"},
    "convert": {
        "--to": "the format: hf (a Hugging Face folder), torchtitan or megatron",
        "--step": "a saved step of a run; the newest if not given",
        "--output": "the new folder, as DST; of a run in its directory if not given",
        "--dtype": "fp32 or bf16; if not given as they are: fp32 of a run",
    },
    "import-primus": {"--devices": "all devices that it runs on: --devices 64", "--json": "print the command and every key as JSON"},
    "import-titan": {"--devices": "all devices that it runs on: --devices 64", "--json": "print the command and every key as JSON"},
}
"""Flags of our own by verb; read before Hydra's and never abbreviated."""

VALUE_FLAGS = {"export": ("--to",), "plan": ("--html",)}
"""Those of OWN_FLAGS that a value follows, of verbs on a configuration."""

FILE_VERBS = ("tune-hardware", "convert", "import-primus", "import-titan")
"""Verbs on a file or a folder: plain arguments follow, and no Hydra."""

NO_EFFECT = {
    "config_path": ("--config-path", "has no effect", "--config-dir DIR looks for groups and options in DIR too"),
    "experimental_rerun": ("--experimental-rerun", "has no effect", "a run's own config.yaml and overrides.yaml say how to do it again"),
}
"""Flags of Hydra that mean nothing here: Namespace's name, the flag, what is wrong, what to do."""


@dataclass(frozen=True)
class Arguments:
    """One command line."""

    verb: str
    flags: frozenset[str]
    values: Mapping[str, str]
    hydra: Namespace
    hydra_argv: tuple[str, ...]
    request: Request

    @property
    def wants_hydra(self) -> bool:
        """Whether Hydra itself answers: it shows a configuration, completes, or sweeps."""
        return bool(self.hydra.cfg or self.hydra.info is not None or self.hydra.shell_completion or self.hydra.hydra_help)


def wants_help(argv: Sequence[str]) -> bool:
    return any(word in ("-h", "--help") for word in argv)


def split_verb(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The verb and the rest. A first word without ``=`` and dash must be a verb."""
    rest = list(argv)
    if not rest or rest[0].startswith("-") or "=" in rest[0] or rest[0].startswith(("+", "~")):
        return "train", rest
    if rest[0] in VERBS:
        return rest.pop(0), rest
    if rest[0].partition(".")[0] in groups() or rest[0].partition(".")[0] in SECTIONS:
        what = "an option" if rest[0] in groups() else "a value"
        raise UserError(Problem(rest[0], f"needs {what}", (f"write {rest[0]}=<{what.partition(' ')[2]}>",)))
    near = nearest(rest[0], VERBS)
    raise UserError(Problem(rest[0], "no such verb", did_you_mean(near) or (f"one of {', '.join(VERBS)}; settings are key=value",)))


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Take a command line apart.

    Raises:
        UserError: for an unknown verb or flag, a flag without effect, a verb in the wrong place.
    """
    verb, rest = split_verb(argv)
    values, rest = _take_values(rest, VALUE_FLAGS.get(verb, ()))
    flags = frozenset(word for word in rest if word in OWN_FLAGS[verb])
    rest = [word for word in rest if word not in flags]
    hydra = _hydra_arguments(rest, verb)
    folder = str(Path(hydra.config_dir).expanduser().absolute()) if hydra.config_dir else None
    request = Request(tuple(hydra.overrides), (hydra.config_name or "config").removesuffix(".yaml"), folder)
    arguments = Arguments(verb, flags, values, hydra, tuple(rest), request)
    if problems := [*_without_effect(arguments), *_misplaced_verbs(arguments), *_given_twice(request), *folder_problems(request)]:
        raise UserError(problems)
    return arguments


def _take_values(words: Sequence[str], names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The values of the flags ``names``, written ``--to args`` or ``--to=args``, and the other words."""
    values: dict[str, str] = {}
    rest, left = [], list(words)
    while left:
        name, equals, value = left[0].partition("=")
        word = left.pop(0)
        if name not in names:
            rest.append(word)
            continue
        if name in values:
            raise UserError(Problem(name, "is given twice", ("leave one out",)))
        if not equals and (not left or left[0].startswith("-")):
            raise UserError(Problem(name, "needs a value"))
        values[name] = value if equals else left.pop(0)
    return values, rest


def _hydra_arguments(rest: Sequence[str], verb: str) -> Namespace:
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.allow_abbrev = False
    known = [*OWN_FLAGS[verb], *(option for action in parser._actions for option in action.option_strings)]

    def refuse(message: str) -> NoReturn:
        unknown = next((word for word in rest if word.startswith("-") and word.partition("=")[0] not in known), "")
        if unknown:
            raise UserError(Problem(unknown, f"no such flag of {verb}", _flag_advice(unknown, known, verb)))
        flag, _, what = message.removeprefix("argument ").partition(": ")
        raise UserError(Problem(flag, what or message, ("see `primus --help`",)))

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_intermixed_args(list(rest))


def _flag_advice(unknown: str, known: Sequence[str], verb: str) -> tuple[str, ...]:
    """The nearest flag, or whose it is; or the setting that was written like a flag, as in other launchers."""
    from primus_app.config.kinds import schema_leaves

    word, _, value = unknown.partition("=")
    if near := nearest(word, [flag for flag in known if flag.startswith("--")], cutoff=0.75):
        return did_you_mean(near)
    if verb == "export" and word == "--output":
        return (f"{verb} prints: put > FILE after the command to keep it",)
    if owners := [owner for owner, flags in OWN_FLAGS.items() if word in flags]:
        return (f"{word} is a flag of {' and '.join(owners)}",)
    name = word.strip("-").replace("-", "_")
    keys = [name] if name in groups() else nearest_keys(name, schema_leaves())
    typed = (key if "=" in key else f"{key}={value or '<value>'}" for key in keys)
    return tuple(line.replace("did you mean", "settings have no dashes: did you mean") for line in did_you_mean(typed)) or (
        "see `primus --help`",
    )


def _without_effect(arguments: Arguments) -> Iterator[Problem]:
    hydra = arguments.hydra
    for name, (flag, what, fix) in NO_EFFECT.items():
        if getattr(hydra, name):
            yield Problem(flag, what, (fix,))
    if (hydra.package or hydra.resolve) and not hydra.cfg:
        yield Problem("--package" if hydra.package else "--resolve", "has no effect without --cfg", ("add --cfg job",))
    if hydra.multirun and arguments.verb == "export":
        yield Problem("--multirun", "has no effect on export, which prints one configuration", ("leave it out",))
    if hydra.multirun and arguments.wants_hydra:
        yield Problem("--multirun", "has no effect where Hydra shows the configuration", ("leave it out and give each key one value",))
    for flag in sorted((*arguments.flags, *arguments.values) if arguments.wants_hydra else ()):
        yield Problem(flag, "has no effect where Hydra shows the configuration", ("leave it out",))


def _given_twice(request: Request) -> Iterator[Problem]:
    """Hydra would take the last one without a word."""
    given: dict[str, list[str]] = {}
    for text in request.overrides:
        key, equals, _ = text.lstrip("+").partition("=")
        if equals and not text.startswith("~"):
            given.setdefault(key, []).append(text)
    for key, texts in given.items():
        if key.startswith(f"{ENGINE_OPTIONS}.") and (within := [other for other in given if other.startswith(f"{key}.")]):
            yield Problem(texts[0], f"and {given[within[0]][0]} are both given: {key} is a section there", ("leave one out",))
        if len(texts) > 1:
            yield Problem(key, f"is given {len(texts)} times: {', '.join(texts)}", ("leave all but one out",))


def _misplaced_verbs(arguments: Arguments) -> Iterator[Problem]:
    for word in arguments.request.overrides:
        if near := nearest(word, VERBS, count=1, cutoff=0.75):
            fix = f"write primus {near[0]} …" if arguments.verb == "train" else f"leave out {word} or {arguments.verb}"
            yield Problem(word, "a verb comes first, and there is one at most", (fix,))
