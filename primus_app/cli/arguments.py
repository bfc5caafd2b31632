"""The command line taken apart: verb, the verb's own flags, Hydra's flags, overrides."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from primus_app.config.compose import Request
from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest

VERBS = {
    "train": "check the request, record it and train (the default)",
    "plan": "show layout, batch, parameters and FLOPs, and what would not work; starts nothing",
}
"""Each verb and what it does."""

OWN_FLAGS = {
    "train": {},
    "plan": {"--json": "print the plan as JSON"},
}
"""Flags of our own by verb; read before Hydra's and never abbreviated."""


@dataclass(frozen=True)
class Arguments:
    """One command line."""

    verb: str
    flags: frozenset[str]
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
    near = nearest(rest[0], VERBS)
    raise UserError(Problem(rest[0], "no such verb", did_you_mean(near) or (f"one of {', '.join(VERBS)}; settings are key=value",)))


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Take a command line apart.

    Raises:
        UserError: for an unknown verb or flag.
    """
    verb, rest = split_verb(argv)
    flags = frozenset(word for word in rest if word in OWN_FLAGS[verb])
    rest = [word for word in rest if word not in flags]
    hydra = _hydra_arguments(rest, verb)
    request = Request(tuple(hydra.overrides), hydra.config_name or "config", hydra.config_dir)
    return Arguments(verb, flags, hydra, tuple(rest), request)


def _hydra_arguments(rest: Sequence[str], verb: str) -> Namespace:
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.allow_abbrev = False
    known = [*OWN_FLAGS[verb], *(option for action in parser._actions for option in action.option_strings)]

    def refuse(message: str) -> NoReturn:
        unknown = next((word for word in rest if word.startswith("-") and word.partition("=")[0] not in known), "")
        fix = did_you_mean(nearest(unknown, known)) if unknown else ()
        raise UserError(Problem(unknown, message if not unknown else f"no such flag of {verb}", fix or ("see `primus --help`",)))

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_intermixed_args(list(rest))
