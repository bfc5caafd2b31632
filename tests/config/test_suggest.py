"""The nearest legal name: best first, at most three, none where nothing is near."""

import pytest

from primus_app.config.compose import groups
from primus_app.config.kinds import schema_leaves
from primus_app.config.suggest import FOREIGN_NAMES, did_you_mean, nearest, nearest_keys, one_of, where_to_look


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("lama3_8b", ["llama3_8b", "llama3_1_8b"]),
        ("Llama3.1-8B", ["llama3_1_8b", "llama3_8b"]),
        ("qwen3-tiny", ["qwen3_tiny"]),
        ("zzz", []),
        ("", []),
    ],
)
def test_nearest(word: str, near: list[str]) -> None:
    assert nearest(word, ["llama3_8b", "llama3_1_8b", "llama2_7b", "qwen3_tiny"])[:2] == near


def test_what_is_far_behind_the_best_is_left_out() -> None:
    assert nearest("--jsn", ["--json", "--run", "--info"]) == ["--json"]
    assert nearest("tpp", ["pp", "tp", "vpp", "etp"]) == ["tp", "pp"]


def test_at_most_three() -> None:
    assert len(nearest("a", ["a1", "a2", "a3", "a4"])) == 3


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("modle", ["model"]),
        ("training.stpes", ["training.steps"]),
        ("trainig.steps", ["training.steps"]),
        ("training_steps", ["training.steps"]),
        ("steps", ["training.steps"]),
        ("optimizer.learning_rate", ["optimizer.lr"]),
        ("model.hiden_size", ["model.hidden_size"]),
        ("mock_date", ["data=mock"]),
        ("training.foo", []),
        ("zzz.qqq", []),
    ],
)
def test_nearest_keys(key: str, near: list[str]) -> None:
    assert nearest_keys(key, schema_leaves(), groups()) == near


def test_names_of_other_launchers_stand_for_keys_that_exist() -> None:
    for key in FOREIGN_NAMES.values():
        group, _, option = key.partition("=")
        assert key in schema_leaves() or group in groups(), key
        assert not option or option in groups()[group]


def test_sentences() -> None:
    assert did_you_mean([]) == ()
    assert did_you_mean(["a", "b"]) == ("did you mean a or b?",)
    assert one_of(["a"], "options") == ("there is only a",)
    assert one_of(["a", "b"], "options") == ("one of a, b",)
    assert one_of([str(number) for number in range(38)], "options of model") == ("`primus --help` shows the 38 options of model",)
    assert where_to_look("training.foo", {"training"}) == ("`primus --cfg job --package training` shows the keys of training",)
    assert where_to_look("foo.bar", {"training"}) == ("`primus --cfg job` shows every key",)
