"""What convert writes for an engine, read by that engine's own reader: its logits are those of transformers' model."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from primus_app.backends.converted_folder import write_folder
from primus_app.backends.given_weights import find_given

pytestmark = pytest.mark.slow

Folder = Callable[[str], Path]
TORCHTITAN = ("llama", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss")
MEGATRON = (*TORCHTITAN, "qwen2", "mixtral")
WORKER = Path(__file__).parent / "megatron" / "stored_worker.py"
ROOT = Path(__file__).parents[2]
TOKENS = torch.randint(0, 320, (2, 48), generator=torch.Generator().manual_seed(0))


def convert(source: Path, target: str, output: Path) -> Path:
    write_folder(find_given(source, None), target, output, None, lambda done, total: None)
    return output


def expected(folder: Path) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits: torch.Tensor = model(TOKENS).logits
    assert logits.abs().max() > 0.1
    return logits


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("family", TORCHTITAN)
def test_torchtitans(family: str, hf_folder: Folder, tmp_path: Path) -> None:
    from primus_app.backends.torchtitan.device import prepare_device

    prepare_device()
    torch.compiler.set_stance("force_eager")
    from torchtitan.components.checkpointer import CheckpointManager

    from primus_app.backends.torchtitan.model import build_model_spec

    native = convert(hf_folder(family), "torchtitan", tmp_path / "native")
    module: Any = build_model_spec(find_given(native, None).model, seq_len=64, cpu=True, compute="fp32").model.build()
    module.init_states()
    reader = CheckpointManager.Config(enable=True, folder="none", initial_load_path=str(native), keep_latest_k=0).build(
        dataloader=None,
        model_parts=[module.eval()],
        optimizers=None,
        lr_schedulers=None,
        states={},
        sd_adapter=None,
        base_folder=str(tmp_path),
    )
    assert reader.load()
    positions = torch.arange(TOKENS.shape[1]).expand_as(TOKENS).contiguous()
    with torch.no_grad():
        logits = module(TOKENS, positions, module.get_attention_masks(positions))
    assert (logits - expected(hf_folder(family))).abs().max() <= 1e-5


def test_megatrons(hf_folder: Folder, tmp_path: Path) -> None:
    torch.save(TOKENS, tmp_path / "tokens")
    pairs = [(convert(hf_folder(family), "megatron", tmp_path / family), tmp_path / f"{family}.pt") for family in MEGATRON]
    command = [sys.executable, str(WORKER), str(tmp_path / "tokens"), *(str(path) for pair in pairs for path in pair)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    for family in MEGATRON:
        logits = torch.load(tmp_path / f"{family}.pt")
        assert (logits - expected(hf_folder(family))).abs().max() <= 1e-5, family
