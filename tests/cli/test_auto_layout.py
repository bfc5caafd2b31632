"""parallel=auto and training.micro_batch_size=auto: what they come to, and that the run's records have it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus_app.cli.training import load
from primus_app.config.compose import Request, hydra_ready
from primus_app.launch.devices import Devices
from primus_app.plan.notes import notes
from primus_app.plan.plan import make_plan
from primus_app.run.directory import run_directory
from primus_app.run.snapshot import config_text

Door = Callable[..., Any]
BIG = (
    *("hardware=mi300x", "cluster.nodes=8", "precision=bf16", "backend=megatron"),
    *("training.seq_len=8192", "training.global_batch_size=128"),
)


def planned(door: Door, *overrides: str) -> Any:
    return json.loads(door("plan", "--json", *overrides).out)


def test_it_is_the_best_that_tune_shows(door: Door) -> None:
    best = json.loads(door("tune", "--json", "model=llama3_70b", *BIG).out)["best"][0]
    found = planned(door, "model=llama3_70b", *BIG, "parallel=auto")
    degrees = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard")
    assert {name: found["mesh"][name] for name in degrees} == {name: best[name] for name in degrees}
    assert found["batch"]["micro_batch_size"] == best["micro_batch_size"]
    assert found["time"]["step_s"]["total"] == pytest.approx(best["step_s"])
    assert found["memory"]["verdict"] != "does not fit"


def test_the_note_has_what_is_predicted(door: Door) -> None:
    answer = door("plan", "model=llama3_70b", *BIG, "parallel=auto", "--json")
    found = json.loads(answer.out)
    note = next(
        line for line in door("plan", "model=llama3_70b", *BIG, "parallel=auto").out.split("\n") if line.startswith("note: parallel")
    )
    assert f"{found['time']['step_s']['total']:.3g} s a step" in note
    assert f"{found['memory']['needed'] / 2**30:,.1f} GiB on the fullest device" in note


def test_a_run_keeps_its_layout_while_its_devices_stay(tmp_path: Path) -> None:
    """What was recorded is taken, though a search would not; on other devices, or with another degree typed, it is searched for again."""
    devices = Devices("cpu", 1, (), memory_gib=16.0)
    typed = ("parallel=auto", f"workspace={tmp_path}", "exp_name=one", "cluster.devices_per_node=4")
    with hydra_ready(None):
        first, last = load(Request(typed), devices)
        assert (first.parallel.dp_shard, last) == (4, None)
        parallel = first.parallel.model_copy(update={"dp_shard": 2, "tp": 2})
        recorded = first.model_copy(update={"parallel": parallel})
        folder = run_directory(first).attempts_dir / "0"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(config_text(recorded))
        again, last = load(Request(typed), devices)
        assert (again.parallel, again.training) == (recorded.parallel, recorded.training)
        assert "tp 2, dp_shard 2, micro batch 4: as at the run's last start" in notes(again, make_plan(again, local_devices=1), last)[0]
        fewer, last = load(Request((*typed[:-1], "cluster.devices_per_node=2")), devices)
        assert (fewer.parallel.tp, fewer.parallel.dp_shard) == (1, 2)
        assert "at the run's last start it was tp 2, dp_shard 2, micro batch 4" in notes(fewer, make_plan(fewer, local_devices=1), last)[0]
        other, _ = load(Request((*typed, "parallel.pp=2")), devices)
        assert (other.parallel.pp, other.parallel.tp, other.parallel.dp_shard) == (2, 1, 2)
        of_sweep, last = load(Request((*typed[:2], typed[3])), devices, exp_name="one")
        assert of_sweep.parallel == recorded.parallel


def test_what_is_given_stays_whether_typed_or_in_a_file(door: Door, tmp_path: Any) -> None:
    typed = planned(door, "model=llama3_70b", *BIG, "parallel=auto", "parallel.tp=4", "training.recompute=full")
    assert typed["mesh"]["tp"] == 4
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "mine.yaml").write_text("# @package _global_\nparallel: {pp: 2}\n")
    of_file = planned(door, "model=llama3_70b", *BIG, "parallel=auto", "experiment=mine", "--config-dir", str(tmp_path))
    assert of_file["mesh"]["pp"] == 2


def test_without_figures_for_a_time_the_model_is_divided_least(door: Door) -> None:
    """A CPU: all replicas shard, nothing else is divided; 16 samples over 4 are 4 each."""
    answer = door("plan", "parallel=auto", "cluster.devices_per_node=4")
    assert answer.code == 0
    assert "note: parallel=auto is dp_shard 4, micro batch 4: of those that fit the one that divides the model least" in answer.out
    assert "GiB for all processes" in answer.out
    assert planned(door, "parallel=auto", "parallel.tp=2", "cluster.devices_per_node=4")["mesh"]["dp_shard"] == 2


def test_where_nothing_fits_it_is_refused_with_the_leanest(door: Door) -> None:
    answer = door("plan", "parallel=auto", "model=llama3_1_405b", "hardware=mi300x")
    assert answer.code == 2
    assert "parallel=auto: none of" in answer.err
    assert "the leanest needs" in answer.err
    assert "parallel.schedule: has no effect: parallel=auto chooses it" in door("plan", "parallel=auto", "parallel.schedule=gpipe").err


def test_mistakes_that_no_layout_mends_are_told_as_ever(door: Door) -> None:
    answer = door("plan", "parallel=auto", "parallel.tp=3", "cluster.devices_per_node=3")
    assert answer.code == 2
    assert "tp 3 does not divide num_attention_heads 4" in answer.out


def test_an_automatic_micro_batch_leaves_room_in_the_memory(door: Door) -> None:
    """8 or 4 samples of llama3_8b at 8192 tokens do not fit a device, 2 do."""
    base = ("model=llama3_8b", "parallel=fsdp", "hardware=mi300x", "precision=bf16", "backend=megatron", "training.seq_len=8192")
    verdicts = {}
    for size in (2, 4, 8):
        verdicts[size] = planned(door, *base, "training.global_batch_size=64", f"training.micro_batch_size={size}")["memory"]["verdict"]
    assert verdicts == {2: "fits", 4: "does not fit", 8: "does not fit"}
    assert planned(door, *base, "training.global_batch_size=64")["batch"]["micro_batch_size"] == 2
