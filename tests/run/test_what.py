"""The two halves of a configuration."""

from typing import Any

import pytest

from primus_app.config.schema import Config
from primus_app.config.schema.base import Section
from primus_app.run.what import Difference, differences, fix_schedule, half_of, refused, total_steps, what_digest, what_of


def _changed(config: Config, key: str, value: Any) -> Config:
    section: Any = config
    chain: list[tuple[Any, str]] = []
    for name in key.split("."):
        chain.append((section, name))
        section = getattr(section, name)
    for owner, name in reversed(chain):
        value = owner.model_copy(update={name: value})
    return value


def test_the_what_is_exactly_the_what_of_the_schema(full_model: Config) -> None:
    what = what_of(full_model)
    for key in ("model.hidden_size", "model.moe.num_experts", "training.seed", "optimizer.lr", "precision.compute", "data.source"):
        assert key in what
    for key in ("model.path", "training.micro_batch_size", "data.path", "work_group", "exp_name", "parallel.tp", "logging.every"):
        assert key not in what
    assert what["data.split"] == [98.0, 2.0], "as JSON gives it back"


def test_an_absent_section_is_one_key(config: Config, full_model: Config) -> None:
    assert what_of(config)["model.moe"] is None
    found = {item.key: item for item in differences(what_of(config), what_of(full_model))}
    assert set(found) == {"model.moe", "model.mla", "model.rope_scaling"}
    assert found["model.moe"].old is None
    assert found["model.moe"].new["num_experts"] == 8
    back = {item.key: item for item in differences(what_of(full_model), what_of(config))}
    assert back["model.moe"].new is None
    assert back["model.moe"].old == found["model.moe"].new


def test_a_key_that_the_schema_has_gained_had_its_default(full_model: Config) -> None:
    new = what_of(full_model)
    lost = ("model.qk_norm", "model.moe.n_group", "data.split", "model.init")
    old = {key: value for key, value in new.items() if key not in lost}
    assert differences(old, new) == []
    assert differences(old, new | {"model.qk_norm": True}) == [Difference("model.qk_norm", False, True)]
    assert differences({key: value for key, value in new.items() if key != "model.hidden_size"}, new) == [
        Difference("model.hidden_size", None, 64)  # no default: not known, so not taken for the same
    ]
    assert differences(new | {"model.old_key": 3}, new) == [Difference("model.old_key", 3, None)]


def test_a_key_that_has_become_how_no_longer_differs(config: Config) -> None:
    what = what_of(config)
    assert "data.tokenizer" not in what, "the tokens it makes count, not where it lies"
    assert differences(what | {"data.tokenizer": "byte"}, what) == []


def test_the_length_may_grow_and_nothing_else(config: Config) -> None:
    old = what_of(config)
    assert refused(old, what_of(_changed(config, "training.steps", 400))) == []
    assert refused(old, what_of(_changed(config, "training.steps", 199))) == [Difference("training.steps", 200, 199)]
    both = _changed(_changed(config, "training.steps", 400), "optimizer.lr", 1e-3)
    assert refused(old, what_of(both)) == [Difference("optimizer.lr", 3e-3, 1e-3)]


@pytest.mark.parametrize(("tokens", "steps"), [(1, 1), (2048, 1), (2049, 2), (409_600, 200)])
def test_tokens_are_rounded_up_to_whole_steps(config: Config, tokens: int, steps: int) -> None:
    """A step has 16 samples of 128 tokens: 2048."""
    other = _changed(_changed(config, "training.steps", None), "training.tokens", tokens)
    assert total_steps(what_of(other)) == steps
    assert bool(refused(what_of(config), what_of(other))) == (steps < 200)


def test_the_digest_names_the_curve_however_long(config: Config) -> None:
    digest = what_digest(what_of(config))
    assert digest == what_digest(what_of(_changed(config, "training.steps", 400)))
    assert digest == what_digest(what_of(_changed(config, "parallel.tp", 2)))
    assert digest != what_digest(what_of(_changed(config, "training.seed", 1)))


def test_the_schedule_is_fixed_at_the_first_start(config: Config) -> None:
    assert fix_schedule(config).optimizer.schedule_steps == 200
    longer = _changed(config, "training.steps", 400)
    assert fix_schedule(longer, 200).optimizer.schedule_steps == 200
    assert fix_schedule(_changed(longer, "optimizer.schedule_steps", 300), 200).optimizer.schedule_steps == 300


def test_every_field_of_the_schema_has_a_half(full_model: Config) -> None:
    def walk(section: Section) -> int:
        fields = type(section).model_fields
        assert all(half_of(field) in ("what", "how") for field in fields.values())
        return len(fields) + sum(walk(value) for value in dict(section).values() if isinstance(value, Section))

    assert walk(full_model) > 100
