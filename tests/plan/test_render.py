"""The plan on a terminal and in a pipe."""

import io

import pytest
from rich.console import Console

from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.plan.plan import make_plan
from primus_app.plan.render import render_plan

CASES: list[tuple[str, ...]] = [
    (),
    ("model=llama3_1_405b", "parallel=tp8_pp16", "hardware=mi300x", "training.micro_batch_size=1", "training.seq_len=8192"),
    (
        "model=deepseek_v3",
        "parallel=fsdp",
        "parallel.pp=9",
        "parallel.ep=64",
        "hardware=mi300x",
        "training.micro_batch_size=1",
        "training.global_batch_size=5760",
    ),
]


def rendered(*overrides: str, width: int = 80, is_terminal: bool = False) -> str:
    plan = make_plan(load_config(Request(overrides), hardware="cpu"), local_devices=1)
    out = io.StringIO()
    render_plan(plan, Console(file=out, width=width, force_terminal=is_terminal))
    return out.getvalue()


@pytest.mark.parametrize("overrides", CASES)
def test_tables_fit_in_80_columns_and_are_plain_in_a_pipe(overrides: tuple[str, ...]) -> None:
    text = rendered(*overrides)
    assert "problem" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.isascii()
    assert "\033" not in text
    assert "…" not in text


@pytest.mark.parametrize("overrides", CASES)
@pytest.mark.parametrize("width", [30, 45])
def test_a_narrow_terminal_breaks_no_word(overrides: tuple[str, ...], width: int) -> None:
    """The words are those of a page on which every line has room."""
    assert set(rendered(*overrides, width=width).split()) == set(rendered(*overrides, width=1000).split())


def test_a_terminal_gets_style() -> None:
    assert "\033[1m" in rendered(is_terminal=True)


def test_the_numbers_of_a_large_plan_are_there() -> None:
    text = " ".join(rendered(*CASES[1]).split())
    for number in (
        "128 16 x 8",
        "405,853,388,800",
        "2.625e+12",
        "47.5 GiB",
        "1-14 8 25,501,630,464 3,187,933,184",
        "6 N_active_no_embedding",
    ):
        assert number in text


def test_experts_show_the_active_weights() -> None:
    text = " ".join(rendered(*CASES[2]).split())
    assert "active 37,552,282,624 met by one token" in text
    assert "expert parallel 64" in text


def test_problems_are_counted_and_their_lines_stay_whole() -> None:
    text = rendered("parallel=fsdp", "parallel.tp=3", "optimizer.min_lr=1", "cluster.devices_per_node=8")
    assert "problems, each of which would stop the run" in text
    assert "1. parallel: world 8 = 1 node x 8 devices is not divisible by tp 3 x pp 1 x cp 1 = 3\n     parallel.tp=2\n" in text
    assert "1 problem that would stop the run" in rendered("optimizer.min_lr=1")


def test_text_in_brackets_is_not_taken_for_style() -> None:
    assert "data.split=[98,2]" in rendered("data.split=[100,0]")
