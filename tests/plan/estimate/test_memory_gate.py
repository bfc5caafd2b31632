"""Predicted memory against what is there: the verdict, the refusal with its ways out, and the note."""

from dataclasses import replace

import pytest

from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.config.schema import Config
from primus_app.plan.estimate.gate import memory_note, memory_problems
from primus_app.plan.estimate.memory import MemoryEstimate, estimate_memory
from primus_app.plan.memory.overhead import PROCESS
from primus_app.plan.plan import make_plan

GIB = 2**30
LLAMA_70B = ("model=llama3_70b", "parallel=tp8_pp4", "hardware=mi300x", "precision=bf16", "training.micro_batch_size=1")
LONG = ("training.seq_len=8192", "training.global_batch_size=128", "cluster.nodes=8", "backend=megatron")


def compose(*overrides: str) -> Config:
    return load_config(Request(overrides), hardware="cpu")


def estimate_of(*overrides: str, local_bytes: int | None = None) -> MemoryEstimate:
    config = compose(*overrides)
    plan = make_plan(config, local_devices=8)
    assert plan.mesh is not None
    assert plan.batch is not None
    return estimate_memory(config, plan.mesh, plan.batch, local_bytes)


def problems_of(*overrides: str, local_bytes: int | None = None) -> list[str]:
    config = compose(*overrides)
    plan = make_plan(config, local_devices=8)
    assert plan.problems == ()
    found = memory_problems(config, plan, local_devices=8, local_bytes=local_bytes, legal=lambda config, plan: True)
    return [str(problem) for problem in found]


def test_a_device_has_a_little_less_than_it_is_sold_with() -> None:
    # torch tells 191.98 of 192 GiB on an MI300X and 79.1 of 80 on an H100; the one fraction for all is the H100's.
    assert estimate_of(*LLAMA_70B, *LONG).available == pytest.approx(192 * GIB, rel=0.012)


def test_the_first_stage_of_1f1b_needs_most() -> None:
    # It has pp micro batches in flight, the last one has one, and all have as many layers.
    found = estimate_of(*LLAMA_70B, *LONG)
    assert found.worst == 0
    assert found.stages[0].activations == pytest.approx(4 * found.stages[3].activations, rel=0.02)
    assert found.needed == found.stages[0].total
    assert found.verdict == "fits"


@pytest.mark.parametrize(("share", "verdict"), [(1.001, "does not fit"), (0.999, "tight"), (0.801, "tight"), (0.799, "fits")])
def test_verdicts_by_share(share: float, verdict: str) -> None:
    found = estimate_of(*LLAMA_70B, *LONG)
    assert replace(found, available=found.needed / share).verdict == verdict


def test_nothing_is_known_of_hardware_without_a_figure() -> None:
    found = estimate_of(*LLAMA_70B, *LONG)
    assert replace(found, available=None).verdict == "unknown"


def test_processes_on_a_cpu_share_its_memory() -> None:
    one, two = (estimate_of(f"cluster.devices_per_node={n}", "parallel.dp_replicate=auto", "parallel.dp_shard=1") for n in (1, 2))
    state = 16 * 820_352
    assert one.needed > PROCESS["torchtitan"] + state
    assert one.stages[0].overhead == PROCESS["torchtitan"]
    assert two.needed == pytest.approx(2 * one.needed, rel=0.01)


def test_megatrons_optimizer_shards_over_replicas_where_there_are_no_shards() -> None:
    # optimizer_instances of backends/megatron/translate.py is 1 there, so float32 moments are 8 bytes over all 2 x 2 ranks of dp and cp.
    wanted = ("backend=megatron", "parallel.cp=2", "parallel.dp_replicate=2", "parallel.dp_shard=1", "cluster.devices_per_node=4")
    whole, divided = (estimate_of(*wanted, f"parallel.distributed_optimizer={on}").stages[0] for on in ("auto", "true"))
    assert (whole.optimizer, divided.optimizer) == (8 * 820_352, 2 * 820_352)


def test_recomputation_in_part_by_our_key_or_by_megatrons_words() -> None:
    full = (*LLAMA_70B, *LONG, "training.recompute=full")
    native = "+backend.native.transformer.recompute_"
    ours = estimate_of(*full, "training.recompute_layers=5").stages[0]
    assert ours == estimate_of(*full, f"{native}method=block", f"{native}num_layers=5").stages[0]
    assert estimate_of(*full).stages[0].activations < ours.activations < estimate_of(*LLAMA_70B, *LONG).stages[0].activations
    assert estimate_of(*full, f"{native}num_layers=4").stages[0].activations < estimate_of(*full).stages[0].activations


def test_what_does_not_fit_is_refused_with_ways_that_do() -> None:
    [problem] = problems_of(*LLAMA_70B, *LONG, "hardware=h100", "training.micro_batch_size=4")
    assert problem.startswith("memory: the fullest device (of pipeline stage 0) is predicted to need 11")
    assert "and h100 has 79.1 GiB" in problem
    for way in ("training.recompute=full  (", "training.micro_batch_size=2  (", "plan.allow_oom=true"):
        assert way in problem


def test_each_way_fits_when_it_is_taken() -> None:
    wrong = (*LLAMA_70B, *LONG, "hardware=h100", "training.micro_batch_size=4")
    [problem] = problems_of(*wrong)
    ways = [line.strip().partition("  (")[0] for line in problem.splitlines()[1:-1]]
    assert len(ways) >= 3
    for way in ways:
        changed = [key.partition("=")[0] for key in way.split()]
        rest = [typed for typed in wrong if typed.partition("=")[0] not in changed]
        assert problems_of(*rest, *way.split()) == []


def test_no_way_that_the_engine_refuses() -> None:
    config = compose(*LLAMA_70B, *LONG, "hardware=h100", "training.micro_batch_size=4")
    plan = make_plan(config, local_devices=8)
    [problem] = memory_problems(config, plan, local_devices=8, local_bytes=None, legal=lambda config, plan: False)
    search, override = problem.fix
    assert search.startswith("primus tune")
    assert override == "plan.allow_oom=true starts it all the same"


def test_the_user_may_know_better() -> None:
    wrong = (*LLAMA_70B, *LONG, "hardware=h100", "training.micro_batch_size=4", "plan.allow_oom=true")
    assert problems_of(*wrong) == []
    config = compose(*wrong)
    plan = make_plan(config, local_devices=8)
    assert plan.mesh is not None
    assert plan.batch is not None
    [note] = memory_note(config, plan.mesh, plan.batch, None)
    assert note.endswith("started because of plan.allow_oom=true")


def test_a_tight_run_is_told() -> None:
    config = compose()
    plan = make_plan(config, local_devices=1)
    assert plan.mesh is not None
    assert plan.batch is not None
    needed = estimate_memory(config, plan.mesh, plan.batch, None).needed
    [note] = memory_note(config, plan.mesh, plan.batch, int(needed / 0.9))
    assert note.startswith("memory: the processes together are predicted to need")
    assert memory_note(config, plan.mesh, plan.batch, int(needed / 0.7)) == []
