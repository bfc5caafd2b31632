"""Real runs: what they have learnt goes into transformers, and new runs on any layout start from it.

The first loss of a run that starts from given weights is that of these weights on its first batch, whatever the layout; transformers'
model of the exported folder says what it is.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from primus_app.backends.given_weights import find_given
from primus_app.config.errors import UserError
from primus_app.config.huggingface import load_huggingface
from primus_app.config.schema import ModelConfig
from primus_app.data.prepared import PreparedData
from primus_app.data.samples import open_samples
from primus_app.run.saved_step import find_saved_step
from tests.system.program import SMALL, TIMEOUT_S, environment, last_of_each, losses, rows

pytestmark = pytest.mark.slow

SEED, BATCH, LENGTH = 1234, 4, 32
COMMON = (*SMALL[:2], "data=mock", "user_name=ada")
TWO = "cluster.devices_per_node=2"
SOURCES: dict[str, tuple[str, ...]] = {
    "llama_tiny": ("parallel=fsdp", TWO, "model.rms_norm_eps=1e-4", "data=stdlib_text"),
    "qwen3_tiny": ("model.tie_word_embeddings=true", "parallel=tp2", TWO),
    "qwen3_moe_tiny": ("model.init_std=0.05",),
    "deepseek_v3_tiny": ("training.load_balancing=expert_bias", "parallel=ep2", TWO),
}
"""Each on a layout of its own."""

LAYOUTS: dict[str, tuple[str, ...]] = {
    "one": (),
    "fsdp2": ("parallel=fsdp", TWO),
    "tp2": ("parallel=tp2", TWO),
    "ep2": ("parallel=ep2", TWO),
    "pp2": ("parallel=pp2", "training.micro_batch_size=2", TWO),
}
LOADS = [
    ("llama_tiny", "run", "pp2"),
    ("llama_tiny", "run", "tp2"),
    ("llama_tiny", "folder", "fsdp2"),
    ("llama_tiny", "folder", "pp2"),
    ("qwen3_tiny", "folder", "tp2"),
    ("deepseek_v3_tiny", "run", "one"),
    ("deepseek_v3_tiny", "folder", "ep2"),
]

Source = Callable[[str], tuple[Path, Path]]


def primus(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A verb on files has plain arguments.
    words = arguments if arguments[0] == "convert" else last_of_each(arguments)
    command = [sys.executable, "-m", "primus_app", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=TIMEOUT_S, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def train(place: Path) -> Callable[..., Path]:
    """``train(exp_name, *overrides)``: the run directory of a run that has ended well."""

    def run(exp_name: str, *overrides: str) -> Path:
        done = primus(*COMMON, *overrides, f"workspace={place}", f"exp_name={exp_name}")
        assert done.returncode == 0, done.stdout + done.stderr
        return place / "primus" / "ada" / exp_name

    return run


@pytest.fixture(scope="module")
def source(train: Callable[..., Path]) -> Source:
    """``source(model)``: a run of 3 steps and the Hugging Face folder that ``convert`` has made of it."""

    @cache
    def make(name: str) -> tuple[Path, Path]:
        run = train(name, f"model={name}", "training.steps=3", "training.eval_every=3", "training.eval_steps=1", *SOURCES[name])
        folder = run.parent / "folders" / name
        done = primus("convert", str(run), str(folder), "--to", "hf")
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"checkpoint.load={folder}" in done.stdout
        return run, folder

    return make


@cache
def with_transformers(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    loaded, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
    )
    assert not [name for name in report["missing_keys"] if name != "lm_head.weight"]
    assert not report["unexpected_keys"]
    return loaded.eval()


def first_batch(run: Path, split: Any) -> torch.Tensor:
    """Token ids [batch, length + 1] of the first global batch."""
    prepared = PreparedData.from_dict(json.loads((run / "attempts" / "0" / "data.json").read_text()))
    samples = open_samples(prepared, split, seq_len=LENGTH, seed=SEED, document_mask=False)
    return torch.stack([torch.from_numpy(samples.sample(index).tokens) for index in range(BATCH)])


def loss_of(folder: Path, tokens: torch.Tensor) -> float:
    """transformers' mean loss over all tokens."""
    with torch.no_grad():
        logits = with_transformers(folder)(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()


@pytest.mark.parametrize("name", SOURCES)
def test_transformers_finds_the_runs_own_evaluation_loss(name: str, source: Source) -> None:
    run, folder = source(name)
    [evaluation] = [row["eval_loss"] for row in rows(run) if "eval_loss" in row]
    assert loss_of(folder, first_batch(run, "valid")) == pytest.approx(evaluation, rel=1e-5)
    assert evaluation != pytest.approx(losses(run)[0], rel=1e-4)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("name", SOURCES)
def test_logits_are_those_of_the_engine_on_the_same_checkpoint(name: str, source: Source) -> None:
    from primus_app.backends.torchtitan.load import load_checkpoint
    from primus_app.backends.torchtitan.model import build_model_spec

    run, folder = source(name)
    step = find_saved_step(run, where="test")
    module = build_model_spec(step.config.model, seq_len=LENGTH, cpu=True, compute="fp32").model.build()
    module.init_states()
    load_checkpoint([module.eval()], step.folder)
    tokens = first_batch(run, "valid")[:, :-1].contiguous()
    positions = torch.arange(LENGTH).expand(BATCH, LENGTH).contiguous()
    with torch.no_grad():
        logits = module(tokens, positions, module.get_attention_masks(positions))
        assert (logits - with_transformers(folder)(tokens).logits).abs().max() <= 1e-5


@pytest.mark.parametrize("name", SOURCES)
def test_the_folder_composes_back_to_the_model(name: str, source: Source) -> None:
    run, folder = source(name)
    model = find_saved_step(run, where="test").config.model
    assert ModelConfig.model_validate(load_huggingface(str(folder))) == model
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == (256 if name == "llama_tiny" else None)


def test_what_balancing_has_moved_goes_along(source: Source) -> None:
    from safetensors.torch import load_file

    weights = load_file(source("deepseek_v3_tiny")[1] / "model.safetensors")
    biases = [weight for name, weight in weights.items() if name.endswith("e_score_correction_bias")]
    assert len(biases) == 3
    assert all(bias.any() for bias in biases)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("target", ["hf", "torchtitan", "megatron"])
def test_a_disk_without_room_is_refused_and_stays_clean(target: str, source: Source, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_app.backends import converted_folder, output_folder

    given = find_given(source("llama_tiny")[0], None)
    with pytest.raises(
        UserError, match=r"no room for .* MiB of weights and 16\.0 MiB for the files beside them: 1\.0 MiB of 1\.0 MiB free"
    ):
        converted_folder.write_folder(given, target, disk / "new", None, lambda done, total: None)
    monkeypatch.setattr(output_folder, "_require_room", lambda *given, **more: None)  # as if it had filled up meanwhile
    with pytest.raises(UserError, match="No space left on device") as caught:
        converted_folder.write_folder(given, target, disk / "new", None, lambda done, total: None)
    assert caught.value.code == 3
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize(("name", "kind", "layout"), LOADS)
def test_a_run_starts_from_them_on_any_layout(name: str, kind: str, layout: str, source: Source, train: Callable[..., Path]) -> None:
    run, folder = source(name)
    load = run if kind == "run" else folder
    overrides = [text for text in SOURCES[name] if not text.startswith(("parallel", "cluster"))]
    if kind == "folder":
        overrides = [text for text in overrides if not text.startswith("model.")] + [f"model.path={folder}"]
    model = "hf" if kind == "folder" else name
    new = train(
        f"{name}-{kind}-{layout}",
        f"model={model}",
        *overrides,
        *LAYOUTS[layout],
        "training.steps=1",
        "training.eval_every=0",
        "checkpoint=none",
        f"checkpoint.load={load}",
    )
    assert losses(new) == pytest.approx([loss_of(folder, first_batch(new, "train"))], rel=1e-5)


def test_the_same_command_goes_on_from_the_runs_own_checkpoint(source: Source, train: Callable[..., Path]) -> None:
    """The schedule begins anew, and the source may be gone by then."""
    run, folder = source("llama_tiny")
    copy = shutil.copytree(run, run.parent / "moved")
    one = ("model.rms_norm_eps=1e-4", "data=stdlib_text", "training.eval_every=0")
    unbroken = train("unbroken", *one, "training.steps=4", "optimizer.schedule_steps=2", f"checkpoint.load={run}")
    train("broken", *one, "training.steps=2", f"checkpoint.load={copy}")
    shutil.rmtree(copy)
    broken = train("broken", *one, "training.steps=4", f"checkpoint.load={copy}")
    assert losses(broken) == losses(unbroken)
    assert [row["lr"] for row in rows(broken)][:2] == pytest.approx([1.65e-3, 3e-4])  # a cosine of two steps from 3e-3 to its tenth
    assert losses(broken)[0] == pytest.approx(loss_of(folder, first_batch(broken, "train")), rel=1e-5)


def test_a_damaged_checkpoint_is_told_before_ranks_start(source: Source, place: Path, tmp_path: Path) -> None:
    run, _ = source("llama_tiny")
    copy = tmp_path / "a copy"
    shutil.copytree(run, copy)
    step = newest_step(copy)
    file = max(step.glob("*.distcp"), key=lambda path: path.stat().st_size)
    os.truncate(file, 1000)
    done = primus(*COMMON, *SOURCES["llama_tiny"], f"checkpoint.load='{copy}'", f"workspace={place}", "exp_name=from_damaged")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"error: checkpoint.load: the checkpoint {step} is damaged: {file.name} is too short, 1000 of " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "primus/ada/from_damaged").exists()


def newest_step(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))


def test_the_engines_own_weights_train(train: Callable[..., Path]) -> None:
    """They are others than the seeded ones: TorchTitan draws them with deviations of its own."""
    native = train("native", "model.init=native", "data=stdlib_text", "training.steps=30", "training.eval_every=0", "checkpoint=none")
    seeded = train("seeded", "data=stdlib_text", "training.steps=1", "training.eval_every=0", "checkpoint=none")
    found = losses(native)
    assert found[0] != losses(seeded)[0]
    assert found[0] == pytest.approx(5.77, abs=0.8)
    assert found[-1] < found[0] - 1
