"""The help page offers what there is, and only that."""

from collections.abc import Callable
from typing import Any

import pytest

from primus_app.cli.arguments import OWN_FLAGS, VERBS, parse_arguments
from primus_app.config.compose import groups
from primus_app.config.load import load_config

Door = Callable[..., Any]


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["plan", "--help"], ["model=no_such", "--help"]])
def test_help_is_shown_and_nothing_else_happens(door: Door, argv: list[str]) -> None:
    answer = door(*argv)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("primus_app trains large language models")


def test_every_verb_flag_group_and_option(door: Door) -> None:
    words = door("--help").out.split()
    for name in (*VERBS, *(flag for flags in OWN_FLAGS.values() for flag in flags)):
        assert name in words
    for group, options in groups().items():
        assert group in words
        assert set(options) <= set(words)


def test_what_people_type_first_is_legal(door: Door) -> None:
    """Every example line but those that only name a flag is composed, as it stands on the page."""
    lines = [line.strip() for line in door("--help").out.splitlines()]
    examples = [line.split("  ")[0].split()[1:] for line in lines if line.startswith("primus ") and "  " in line]
    assert len(examples) >= 6
    for argv in examples:
        arguments = parse_arguments(argv)
        if not arguments.hydra.multirun:
            load_config(arguments.request, hardware="cpu")


def test_lines_fit(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    groups_part = door("--help").out.partition("groups and their options")[2].partition("Hydra's flags")[0]
    assert max(map(len, groups_part.splitlines())) <= 80


def test_help_of_a_misspelt_verb(door: Door) -> None:
    answer = door("plna", "--help")
    assert (answer.code, answer.out) == (2, "")
    assert "did you mean plan?" in answer.err
