"""What is offered can be pasted: the shell and Hydra give back the value."""

import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from primus_app.config.typed import typed

ODD = [
    "/data/my runs/a",
    "ü 運",
    "it's",
    'a "b"',
    "a:b*?",
    "$HOME",
    "back\\slash",
    "back\\'",
    "end\\",
    "/plain",
    "12",
    "1e3",
    "a=b",
    "",
    "null",
]


@pytest.mark.parametrize("value", ODD)
def test_the_shell_and_hydra_give_the_value_back(value: str) -> None:
    (word,) = shlex.split(typed("exp_name", value))
    assert OverridesParser.create().parse_override(word).value() == value


def test_plain_text_stays_plain() -> None:
    assert typed("model.path", "/data/llama-3.1/config.json") == "model.path=/data/llama-3.1/config.json"
