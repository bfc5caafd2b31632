"""The verb export at the door: arguments that a shell and Megatron-LM's parser read, notes beside them, and every mistake told."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from primus_app.backends.megatron.pretrain.recorded_arguments import recorded

Door = Callable[..., Any]
BIG = ("backend=megatron", "model=llama3_8b", "parallel=tp8", "precision=bf16", "hardware=mi300x")


def test_one_argument_a_line_for_a_shell(door: Door) -> None:
    answer = door("export", *BIG, "--to", "args")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert all(line.startswith("--") for line in lines)
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert not lines[-1].endswith("\\")
    assert {line.split()[0] for line in lines} <= set(recorded("0.17.0"))
    assert "--tensor-model-parallel-size 8 \\" in lines


def test_a_shell_reads_it_back(door: Door) -> None:
    """Quotes included: the pattern of dense layers and layers with experts has brackets, which a shell would expand."""
    text = door("export", "backend=megatron", "model=deepseek_v3_tiny", "--to=args").out
    shell = subprocess.run(["bash", "-c", f"printf '%s\\n' {text}"], capture_output=True, text=True, check=True)
    words = shell.stdout.splitlines()
    assert words == shlex.split(text.replace("\\\n", ""))
    assert words[words.index("--moe-layer-freq") + 1] == "[0,1,1,1]"


def test_what_the_arguments_leave_open_is_noted(door: Door) -> None:
    notes = door("export", *BIG, "--to", "args").err
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in notes
    assert "add --data-path" in notes
    assert "add --save DIR" in notes
    assert "for 8 ranks" in notes


@pytest.mark.parametrize(
    ("argv", "where", "fix"),
    [
        (("backend=megatron",), "--to", "--to args prints"),
        (("backend=megatron", "--to", "arg"), "--to", "did you mean --to args?"),
        (("backend=megatron", "--to"), "--to", ""),
        (("--to", "args"), "backend", "backend=megatron"),
        (("backend=megatron", "--to", "args", "optimizer.warmup_steps=0"), "optimizer.warmup_steps", "optimizer.warmup_steps=1"),
        (("backend=megatron", "--to", "args", "model=gpt_oss_20b"), "model.", ""),
        (("backend=megatron", "--to", "args", "--multirun", "optimizer.lr=1e-3,2e-3"), "--multirun", "leave it out"),
    ],
)
def test_mistakes(door: Door, argv: tuple[str, ...], where: str, fix: str) -> None:
    answer = door("export", *argv)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {where}")
    assert fix in answer.err


def test_no_torch_is_imported() -> None:
    code = (
        "import sys; from primus_app.__main__ import main; "
        "code = main(['export', 'backend=megatron', '--to', 'args']); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
