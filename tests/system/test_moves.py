"""One run goes on from engine to engine: the same folder, command and curve, with another backend and layout."""

import os
import shutil
from functools import cache
from pathlib import Path

import pytest

from primus_app.backends.converted_folder import write_folder
from primus_app.backends.given_weights import find_given
from primus_app.backends.stored_folder import engine_of
from tests.system.program import Forge, events, losses, rows

pytestmark = pytest.mark.slow

COMMON = (
    *("data=mock", "user_name=ada", "training.seq_len=32", "training.global_batch_size=8", "training.eval_every=0"),
    *("optimizer.lr=1e-3", "optimizer.schedule_steps=60", "checkpoint.every=20", "checkpoint.keep=0"),
)
LEGS = (
    ("backend=torchtitan", "parallel=fsdp", "cluster.devices_per_node=2", "training.steps=20"),
    ("backend=megatron", "parallel=tp2_pp2", "cluster.devices_per_node=4", "training.micro_batch_size=2", "training.steps=40"),
    ("backend=torchtitan", "parallel=single", "cluster.devices_per_node=1", "training.steps=60"),
)
MODELS = ("llama_tiny", "deepseek_v3_tiny", "gpt_oss_tiny")
"""One whose query and key rows TorchTitan permutes and fuses; one with latent attention, fused experts and a selection bias; one whose
experts lie in stacks on disk, with biases."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("moves")


class Runs:
    """Trains what is asked for, once."""

    def __init__(self, forge: Forge, place: Path) -> None:
        self._forge, self._place = forge, place
        self.joined = cache(self._joined)

    def train(self, exp_name: str, *overrides: str) -> Path:
        return self._forge.train(*COMMON, *overrides, workspace=self._place, exp_name=exp_name)

    def _joined(self, model: str) -> Path:
        for leg in LEGS:
            # Under tp Megatron divides experts; TorchTitan's layouts here have one group of them.
            experts = ("parallel.ep=2",) if model != "llama_tiny" and "backend=megatron" in leg else ()
            run = self.train(f"joined_{model}", f"model={model}", *_balanced(model), *experts, *leg)
        return run


def _balanced(model: str) -> tuple[str, ...]:
    return ("training.load_balancing=expert_bias",) if model == "deepseek_v3_tiny" else ()


@pytest.fixture(scope="module")
def runs(forge: Forge, place: Path) -> Runs:
    return Runs(forge, place)


@pytest.mark.parametrize("model", MODELS)
def test_a_run_over_two_engines_has_the_curve_of_an_unbroken_one(model: str, runs: Runs) -> None:
    joined = runs.joined(model)
    unbroken = runs.train(f"unbroken_{model}", f"model={model}", *_balanced(model), *LEGS[2], "checkpoint=none")
    assert [row["step"] for row in rows(joined) if "loss" in row] == list(range(1, 61))
    assert losses(joined) == pytest.approx(losses(unbroken), rel=1e-4)
    assert [row["lr"] for row in rows(joined)] == pytest.approx([row["lr"] for row in rows(unbroken)])
    assert events(joined).count("resumed") == 2
    assert [engine_of(joined / "checkpoints" / f"step-{step}") for step in (20, 40, 60)] == ["torchtitan", "megatron", "torchtitan"]


@pytest.mark.parametrize(("step", "leg"), [(40, LEGS[0]), (60, LEGS[1])])
def test_weights_of_either_engine_start_a_run_on_the_other(step: int, leg: tuple[str, ...], runs: Runs, tmp_path: Path) -> None:
    """The first loss is that of the weights, whoever reads them: it is the same from the Hugging Face folder of that step."""
    joined = runs.joined("llama_tiny")
    write_folder(find_given(joined, step), "hf", tmp_path / "hf", None, lambda done, total: None)
    one = ("model=llama_tiny", *leg, "training.steps=1", "checkpoint=none")
    from_run = runs.train(f"from_{step}", *one, f"checkpoint.load={joined}/checkpoints/step-{step}")
    from_folder = runs.train(f"from_folder_{step}", *one, f"checkpoint.load={tmp_path / 'hf'}")
    assert losses(from_run) == losses(from_folder)
    assert losses(from_run)[0] < losses(joined)[0] - 0.1


@pytest.mark.parametrize("leg", [LEGS[0], (LEGS[0][1], *LEGS[1][:1], *LEGS[0][2:])], ids=["torchtitan", "megatron"])
def test_a_damaged_step_is_passed_over_and_replaced(leg: tuple[str, ...], runs: Runs) -> None:
    """By both ranks, though it is not the same file that each of them reads first. Megatron has written it."""
    joined = runs.joined("llama_tiny")
    engine = "megatron" if "backend=megatron" in leg else "torchtitan"
    copy = joined.with_name(f"damaged_{engine}")
    shutil.copytree(joined, copy)
    shutil.rmtree(copy / "checkpoints" / "step-60")
    file = max((copy / "checkpoints" / "step-40").glob("__1_*.distcp"), key=lambda path: path.stat().st_size)
    os.truncate(file, 1000)
    runs.train(copy.name, "model=llama_tiny", *leg, "training.steps=61")
    assert losses(copy)[:60] == pytest.approx(losses(joined), rel=1e-4)
    warned = (copy / "logs" / "pre_trainer" / "rank-0" / "warning.log").read_text()
    assert "checkpoint step-40 is damaged, going back to step-20" in warned
    assert engine_of(copy / "checkpoints" / "step-40") == engine


@pytest.mark.parametrize("backend", ["torchtitan", "megatron"])
def test_selection_biases_survive_a_checkpoint_in_bfloat16(backend: str, runs: Runs) -> None:
    """They are buffers, which an engine may replace where it changes a model's format; and are kept in float32."""
    settings = ("model=deepseek_v3_tiny", "precision=bf16", f"backend={backend}", *_balanced("deepseek_v3_tiny"), "checkpoint.every=5")
    unbroken = runs.train(f"bf16_{backend}", *settings, "training.steps=10")
    for steps in (5, 10):
        broken = runs.train(f"bf16_broken_{backend}", *settings, f"training.steps={steps}")
    assert losses(broken) == losses(unbroken)
