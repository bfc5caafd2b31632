"""A kept merge with values set into it is what Hydra itself composes."""

import pytest
from hydra import compose as hydra_compose
from omegaconf import OmegaConf

from primus_app.config.compose import Request, compose, composition_errors, hydra_ready, offer_huggingface

REQUESTS = [
    (),
    ("training.steps=7", "optimizer.lr=1e-4"),
    ("training.steps=7", "training.steps=9"),
    ("model=qwen3_moe_tiny", "model.moe.num_experts=4", "training.steps=7"),
    ("parallel=tp2", "parallel.tp=1", "parallel.name=mine"),
    ("data.path='a b,c'", "data.split=[90,10]", "exp_name=null"),
    ("+training.foo=1", "training.steps=3"),
    ("++training.steps=1", "training.steps=3"),
    ("experiment=quick", "training.steps=3"),
]


@pytest.fixture(autouse=True)
def _user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "ada")


@pytest.mark.parametrize("overrides", REQUESTS, ids=" ".join)
def test_is_what_hydra_composes(overrides: tuple[str, ...]) -> None:
    with hydra_ready():
        offer_huggingface({"name": "hf"})
        expected = OmegaConf.to_container(hydra_compose("config", overrides=list(overrides)), resolve=True)
        assert isinstance(expected, dict)
        expected.pop("experiment", None)
        for _ in range(2):
            assert compose(Request(overrides)) == expected


def test_one_composition_does_not_leak_into_the_next() -> None:
    with hydra_ready():
        offer_huggingface({"name": "hf"})
        assert compose(Request(("training.steps=7",)))["training"]["steps"] == 7
        assert compose(Request())["training"]["steps"] == 200


@pytest.mark.parametrize("wrong", [("training.stepps=1",), ("model.foo.bar=1", "training.steps=1"), ("training.steps=[1",)], ids=" ".join)
def test_refuses_what_hydra_refuses(wrong: tuple[str, ...]) -> None:
    with hydra_ready():
        offer_huggingface({"name": "hf"})
        with pytest.raises(composition_errors()) as theirs:
            hydra_compose("config", overrides=list(wrong))
        with pytest.raises(composition_errors()) as ours:
            compose(Request(wrong))
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))


def test_another_model_offered_is_another_composition() -> None:
    with hydra_ready():
        offer_huggingface({"name": "hf", "num_hidden_layers": 3})
        first = compose(Request(("model=hf",)))
        offer_huggingface({"name": "hf", "num_hidden_layers": 5})
        second = compose(Request(("model=hf",)))
    assert (first["model"]["num_hidden_layers"], second["model"]["num_hidden_layers"]) == (3, 5)
