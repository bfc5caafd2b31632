"""primus plan with memory: the table, the numbers and the page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Door = Callable[..., Any]

LLAMA_70B = ("model=llama3_70b", "parallel=tp8_pp4", "hardware=mi300x", "precision=bf16", "training.micro_batch_size=1", "backend=megatron")


def test_a_line_for_each_stage_and_the_verdict_within_100_columns(door: Door) -> None:
    answer = door("plan", *LLAMA_70B)
    assert answer.code == 0
    lines = answer.out.splitlines()
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("Memory of a device")) :]
    assert [line.split()[0] for line in table[2:6]] == ["0", "1", "2", "3"]
    assert "fits: the fullest device" in answer.out
    assert max(map(len, lines)) <= 100


def test_what_does_not_fit_ends_in_2_with_what_to_change(door: Door) -> None:
    small = [typed.replace("mi300x", "a100").replace("batch_size=1", "batch_size=4") for typed in LLAMA_70B]
    answer = door("plan", *small, "training.seq_len=8192", "training.global_batch_size=128")
    assert answer.code == 2
    assert "does not fit" in answer.out
    assert "training.recompute=" in answer.out


def test_json_has_bytes_by_stage_and_flops_by_convention(door: Door) -> None:
    found = json.loads(door("plan", *LLAMA_70B, "--json").out)
    memory = found["memory"]
    assert [stage["stage"] for stage in memory["stages"]] == [0, 1, 2, 3]
    first = memory["stages"][0]
    terms = sum(first[name] for name in ("weights", "gradients", "optimizer", "activations", "temporary", "overhead"))
    assert terms == pytest.approx(first["total"])
    assert memory["needed"] == first["total"]
    assert memory["verdict"] == "fits"
    by_convention = found["flops_per_token_by_convention"]
    assert by_convention["full"]["flops"] == found["flops_per_token"]
    assert set(by_convention) == {"full", "causal", "full_with_embedding", "hardware"}


def test_the_page_is_written_beside_the_tables(door: Door, tmp_path: Path) -> None:
    answer = door("plan", *LLAMA_70B, "--html", "my plan.html")
    assert answer.code == 0
    assert "page            my plan.html" in answer.out
    text = (tmp_path / "my plan.html").read_text()
    assert "llama3_70b on 32 x mi300x" in text
    assert "stage 3" in text


@pytest.mark.parametrize("where", ["no/such/folder.html", "."])
def test_a_page_that_cannot_be_written_is_one_message(door: Door, where: str) -> None:
    answer = door("plan", "--html", where)
    assert answer.code == 2
    assert "--html" in answer.err
    assert "Traceback" not in answer.err


def test_a_run_that_does_not_fit_is_not_started(door: Door) -> None:
    answer = door("model=llama3_2_1b", "training.seq_len=131072", "training.micro_batch_size=8", "workspace=out")
    assert answer.code == 2
    [[head, *ways]] = answer.problems()
    assert head.startswith("memory: the processes together are predicted to need")
    assert ways[-1].strip() == "plan.allow_oom=true starts it all the same"
    assert not Path("out").exists()


def test_time_by_part_and_the_whole_run(door: Door) -> None:
    answer = door("plan", *LLAMA_70B)
    for words in ("Predicted time of a step", "pipeline bubble", "tokens/s/device", "MFU", "device hours", "best checkpoints"):
        assert words in answer.out
    found = json.loads(door("plan", *LLAMA_70B, "--json").out)
    parts = {name: seconds for name, seconds in found["time"]["step_s"].items() if name != "total"}
    assert sum(parts.values()) == pytest.approx(found["time"]["step_s"]["total"])
    assert found["time_needs"] == []


def test_no_time_is_made_up_where_the_hardware_has_no_figures(door: Door) -> None:
    found = json.loads(door("plan", "--json").out)
    assert found["time"] is None
    assert "hardware.efficiency.gemm" in found["time_needs"]
    assert "Predicted time" not in door("plan").out


def test_an_accelerator_without_a_figure_is_told(door: Door) -> None:
    answer = door("plan", *LLAMA_70B, "hardware.nic_gb_s=null")
    assert answer.code == 0
    assert "note: no time is predicted, as mi300x has no hardware.nic_gb_s" in answer.out
