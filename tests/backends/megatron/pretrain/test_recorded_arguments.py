"""Facts about a parser, and arguments that do not fit them."""

import json
from argparse import ArgumentParser

from primus_app.backends.megatron.pretrain.recorded_arguments import (
    as_json,
    facts_of,
    misfits,
    nearest_recorded,
    recorded,
    recorded_versions,
)


def parser() -> ArgumentParser:
    found = ArgumentParser(add_help=False)
    found.add_argument("--num-layers", type=int)
    found.add_argument("--swiglu", action="store_true")
    found.add_argument("--data-path", nargs="*")
    found.add_argument("--rope-type", type=str, choices=["rope", "yarn"])
    return found


def test_what_argparse_says_is_what_is_written() -> None:
    facts = facts_of(parser())
    written = json.loads(as_json(facts))
    assert list(written) == sorted(written)
    assert written["--num-layers"] == {"dest": "num_layers", "action": "store", "type": "int"}
    assert written["--rope-type"]["choices"] == ["rope", "yarn"]
    assert facts["--swiglu"].is_flag


def test_each_misfit_is_named() -> None:
    found = [
        ("--num-layer", ["4"]),
        ("--num-layers", ["4.0"]),
        ("--swiglu", ["true"]),
        ("--rope-type", ["none"]),
        ("--num-layers", ["1", "2"]),
        ("--data-path", ["a", "b"]),
    ]
    assert list(misfits(found, facts_of(parser()))) == [
        "--num-layer: no such argument; did you mean --num-layers?",
        "--num-layers: takes int, not 4.0",
        "--swiglu: is a flag now, which takes no value",
        "--rope-type: does not take none; it takes rope, yarn",
        "--num-layers: takes one value, not 2",
    ]


def test_an_argument_of_another_kind_is_named_though_it_still_takes_the_words() -> None:
    changed = ArgumentParser(add_help=False)
    changed.add_argument("--num-layers", type=float)
    changed.add_argument("--swiglu", action="store_false", dest="gelu")
    found = [("--num-layers", ["4"]), ("--swiglu", [])]
    assert list(misfits(found, facts_of(changed), facts_of(parser()))) == [
        "--num-layers: was store int of num_layers and is store float of num_layers",
        "--swiglu: was store_true of swiglu and is store_false of gelu",
    ]


def test_the_record_of_the_same_series_is_taken() -> None:
    assert nearest_recorded("0.17.9") == "0.17.0"
    assert nearest_recorded("9.0.0") == recorded_versions()[-1]


def test_facts_of_a_published_parser() -> None:
    """As `pretrain_gpt.py --help` of 0.17.0 says them."""
    facts = recorded("0.17.0")
    assert facts["--tensor-model-parallel-size"].type == "int"
    assert facts["--disable-bias-linear"].dest == "add_bias_linear"
    assert facts["--transformer-impl"].choices == ("local", "transformer_engine", "inference_optimized")
