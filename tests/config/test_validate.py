"""Plain data against the schema: one problem a key, in words that name what the key takes."""

import copy
from typing import Any

import pytest

from primus_app.config.compose import Request, compose, hydra_ready
from primus_app.config.errors import Problem
from primus_app.config.kinds import allowed, schema_fields, schema_leaves
from primus_app.config.load import prepare_model
from primus_app.config.schema import Config
from primus_app.config.validate import shown, validate


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    prepare_model(Request())
    with hydra_ready():
        return compose(Request(("hardware=cpu",)))


def changed(data: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    data = copy.deepcopy(data)
    *sections, last = key.split(".")
    inner = data
    for section in sections:
        inner = inner[section]
    inner[last] = value
    return data


def problems(data: dict[str, Any]) -> list[Problem]:
    found = validate(data)
    assert isinstance(found, list)
    return found


def test_a_good_configuration(composed: dict[str, Any]) -> None:
    config = validate(composed)
    assert isinstance(config, Config)
    assert config.training.steps == 200


@pytest.mark.parametrize("key", schema_leaves())
def test_a_value_of_no_kind_is_refused_by_name_with_what_the_key_takes(composed: dict[str, Any], key: str) -> None:
    """An object of no type of YAML fits no key but backend.native's own values."""
    parent = key.rpartition(".")[0]
    if parent in ("model.moe", "model.mla", "model.rope_scaling"):
        return
    found = problems(changed(composed, key, [[[]]]))
    assert [problem.where for problem in found] == [key]
    assert found[0].what == f"[[[]]] is not allowed; it takes {allowed(schema_fields()[key])}"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("training.steps", "a whole number above 0 or null"),
        ("optimizer.beta1", "a number from 0 below 1"),
        ("training.document_mask", "true or false"),
        ("optimizer.name", "only adamw"),
        ("training.recompute", "one of none, selective, full"),
        ("cluster.nodes", "a whole number above 0 or auto"),
        ("backend.patches", "one of auto, none or a list of names"),
        ("data.split", "a list of 2 numbers"),
        ("workspace", "text that is not empty"),
        ("exp_name", "text or null"),
        ("model.moe", "a group of keys or null"),
    ],
)
def test_what_a_key_takes(key: str, words: str) -> None:
    assert allowed(schema_fields()[key]) == words


@pytest.mark.parametrize("key", [key for key in schema_leaves() if key.startswith(("training.", "optimizer."))])
def test_true_is_no_number_and_no_word(composed: dict[str, Any], key: str) -> None:
    if allowed(schema_fields()[key]) == "true or false":
        return
    assert [problem.where for problem in problems(changed(composed, key, True))] == [key]


def test_one_problem_a_key_and_all_keys(composed: dict[str, Any]) -> None:
    data = composed
    for key, value in {"cluster.nodes": "all", "training.steps": "x", "data.split": ["a", "b"], "optimizer.lr": -1}.items():
        data = changed(data, key, value)
    assert [problem.where for problem in problems(data)] == ["training.steps", "optimizer.lr", "data.split", "cluster.nodes"]


def test_missing_keys_are_told_together(composed: dict[str, Any]) -> None:
    data = changed(composed, "model", {"name": "mine"})
    (problem,) = problems(data)
    assert problem.where == "model"
    assert problem.what.startswith("needs family, num_hidden_layers, hidden_size")


def test_an_unknown_section_is_told_by_its_key(composed: dict[str, Any]) -> None:
    (problem,) = problems({**composed, "trainig": {"steps": 5}})
    assert str(problem) == "trainig.steps: no such key\n  did you mean training.steps?"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (5, "5"), (0.5, "0.5"), ("a", "'a'"), ([98.0, 2.0], "[98.0, 2.0]"), ({"a": None}, "{a: null}")],
)
def test_values_are_shown_as_they_are_typed(value: object, text: str) -> None:
    assert shown(value) == text
