"""The table from our keys to Megatron-LM's arguments: complete, and accepted by every parser whose arguments are recorded."""

from pathlib import Path

import pytest
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

from primus_app.backends.megatron.pretrain.recorded_arguments import misfits, recorded, recorded_versions
from primus_app.backends.megatron.pretrain.row import Source
from primus_app.backends.megatron.pretrain.support import check_arguments
from primus_app.backends.megatron.pretrain.table import ROWS, WITHOUT_ARGUMENT, WITHOUT_ARGUMENT_SECTIONS, arguments
from primus_app.config.compose import Request
from primus_app.config.kinds import schema_leaves
from primus_app.config.load import load_config
from primus_app.plan.learning_rate import learning_rate
from primus_app.plan.plan import make_plan

MODELS = ("llama_tiny", "llama3_1_8b", "qwen2_5_0_5b", "qwen3_tiny", "mixtral_8x7b", "qwen3_moe_tiny", "deepseek_v3_tiny")
LAYOUTS = (
    (),
    ("parallel=tp2", "cluster.devices_per_node=2"),
    ("parallel=pp2", "parallel.schedule=interleaved", "parallel.vpp=2", "cluster.devices_per_node=2"),
    ("model.num_hidden_layers=6", "parallel=pp2", "parallel.pp=4", "cluster.devices_per_node=4"),
    ("precision=bf16", "training.recompute=full", "parallel=fsdp", "cluster.devices_per_node=2", "optimizer.clip_grad_norm=0"),
    ("training.recompute=full", "training.recompute_layers=2"),
    ("data=mock", "training.recompute=selective", "optimizer.schedule=wsd", "checkpoint.async=true", "training.document_mask=true"),
)


def source(*overrides: str, hosted: bool = False, engine: bool = False) -> Source:
    config = load_config(Request(("backend=megatron", *overrides)), hardware="cpu")
    plan = make_plan(config, local_devices=1)
    assert not plan.problems
    return Source.of(config, plan, cpu=not engine, engine=engine, hosted=hosted)


def as_dict(found: Source) -> dict[str, list[str]]:
    return dict(arguments(found))


def test_every_key_has_a_line_or_a_reason() -> None:
    said = {key for row in ROWS for key in row.keys}
    leaves = {key for key in schema_leaves() if not key.startswith(WITHOUT_ARGUMENT_SECTIONS)}
    assert leaves - said - set(WITHOUT_ARGUMENT) == set()
    assert said & set(WITHOUT_ARGUMENT) == set(), "a key has both"
    assert said | set(WITHOUT_ARGUMENT) <= set(schema_leaves()), "a line has a key that is none"


def test_no_argument_has_two_lines() -> None:
    names = [row.argument for row in ROWS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("version", recorded_versions())
def test_every_line_is_an_argument_of(version: str) -> None:
    """Recorded from the parsers of the published wheels by scripts/record-megatron-arguments."""
    assert {row.argument for row in ROWS} <= set(recorded(version))


@pytest.mark.parametrize("hosted", [True, False])
@pytest.mark.parametrize("overrides", [*((f"model={name}",) for name in MODELS), *LAYOUTS])
def test_what_comes_out_is_accepted(overrides: tuple[str, ...], hosted: bool) -> None:
    for engine in (True, False):
        found = arguments(source(*overrides, hosted=hosted, engine=engine))
        for version in recorded_versions():
            assert list(misfits(found, recorded(version), recorded(recorded_versions()[0]))) == []


def test_tp_adds_no_rows_to_the_vocabulary() -> None:
    """NullTokenizer has one token more than it is told, its end; Megatron rounds up to a multiple of the divisor times tp."""
    found = as_dict(source("parallel=tp2", "cluster.devices_per_node=2"))
    size, unit = int(found["--vocab-size"][0]) + 1, int(found["--make-vocab-size-divisible-by"][0]) * 2
    assert -(-size // unit) * unit == 320


def test_uneven_stages_in_megatrons_letters() -> None:
    """Six layers on four stages, one fewer on the first and the last."""
    found = as_dict(source("model.num_hidden_layers=6", "parallel=pp2", "parallel.pp=4", "cluster.devices_per_node=4"))
    assert found["--pipeline-model-parallel-layout"] == ["Et|tt|tt|tL"]
    assert "--num-virtual-stages-per-pipeline-rank" not in found


def test_lists_as_megatron_reads_them() -> None:
    """Its parser evaluates the pattern, and allows no blanks."""
    assert as_dict(source("model=deepseek_v3_tiny"))["--moe-layer-freq"] == ["[0,1,1,1]"]


def test_indexed_pairs_with_their_weights(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for end in (".bin", ".idx"):
            (tmp_path / f"{name}{end}").touch()
    found = load_config(
        Request(("backend=megatron", "data=indexed", f"data.path=[{tmp_path}/a.bin,{tmp_path}/b]", "data.weights=[0.3,0.7]")),
        hardware="cpu",
    )
    plan = make_plan(found, local_devices=1)
    alone = Source.of(found, plan, cpu=True, engine=False, hosted=False)
    assert as_dict(alone)["--data-path"] == ["0.3", f"{tmp_path}/a", "0.7", f"{tmp_path}/b"]
    assert as_dict(alone)["--split"] == ["98,2,0"]


class Groups:
    """What the scheduler asks of an optimizer."""

    def __init__(self) -> None:
        self.param_groups = [{"lr": 0.0, "weight_decay": 0.0}]


@pytest.mark.parametrize(
    ("schedule", "warmup", "length"),
    [("cosine", 3, 20), ("cosine", 1, 20), ("linear", 4, 20), ("linear", 20, 20), ("constant", 0, 20), ("wsd", 0, 20), ("wsd", 5, 20)],
)
def test_the_rates_are_those_of_the_plan(schedule: str, warmup: int, length: int) -> None:
    """By Megatron's own scheduler, made of the arguments as its trainer makes it, and by our formula, at every step and beyond the last."""
    said = source(
        f"optimizer.schedule={schedule}", f"optimizer.warmup_steps={warmup}", "training.steps=30", f"optimizer.schedule_steps={length}"
    )
    assert check_arguments(said.config) == []
    found = {name: words[0] for name, words in arguments(said) if words}
    batch, groups = int(found["--global-batch-size"]), Groups()
    scheduler = OptimizerParamScheduler(
        groups,
        init_lr=float(found["--lr-warmup-init"]),
        max_lr=float(found["--lr"]),
        min_lr=float(found["--min-lr"]),
        lr_warmup_steps=int(found["--lr-warmup-iters"]) * batch,
        lr_decay_steps=int(found["--lr-decay-iters"]) * batch,
        lr_decay_style=found["--lr-decay-style"],
        start_wd=0.1,
        end_wd=0.1,
        wd_incr_steps=30 * batch,
        wd_incr_style="constant",
        wsd_decay_steps=int(found.get("--lr-wsd-decay-iters", 0)) * batch,
        lr_wsd_decay_style=found.get("--lr-wsd-decay-style"),
    )
    for step in range(1, 31):
        assert groups.param_groups[0]["lr"] == pytest.approx(learning_rate(said.config.optimizer, step, length), rel=1e-12), step
        scheduler.step(batch)


@pytest.mark.parametrize(
    ("overrides", "where"),
    [
        (("optimizer.warmup_steps=0",), "optimizer.warmup_steps"),
        (("optimizer.schedule=wsd", "optimizer.warmup_steps=2", "training.steps=20"), "optimizer.schedule"),
        (("model.rope_theta=10000.5",), "model.rope_theta"),
    ],
)
def test_what_no_argument_says_is_refused(overrides: tuple[str, ...], where: str) -> None:
    config = load_config(Request(("backend=megatron", *overrides)), hardware="cpu")
    assert [problem.where for problem in check_arguments(config)] == [where]
