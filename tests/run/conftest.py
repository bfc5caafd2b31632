"""A small configuration, and file systems that are full or read-only."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primus_app.config.schema import Config

TINY = {
    "name": "llama_tiny",
    "family": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 257,
    "max_position_embeddings": 256,
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MLA = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16}
ROPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SECTIONS = ("training", "optimizer", "precision", "data", "parallel", "backend", "cluster", "hardware", "checkpoint", "logging")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """llama_tiny with every default, in a workspace of the test's own, as the run ``first``."""
    sections: dict[str, object] = {name: {} for name in SECTIONS}
    sections["backend"] = {"name": "torchtitan"}
    return Config.model_validate(
        {"user_name": "ada", "exp_name": "first", "workspace": str(tmp_path / "output"), "model": TINY, **sections}
    )


@pytest.fixture
def full_model(config: Config) -> Config:
    """The same with every optional section present."""
    model = {**TINY, "moe": MOE, "mla": MLA, "rope_scaling": ROPE}
    return Config.model_validate({**config.model_dump(), "model": model})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a file system of 64 KiB and leaves so many bytes of it free."""
    disk = tmp_path / "disk"
    with _mounted(disk, "size=64k"):

        def fill(free: int) -> Path:
            (disk / "filler").write_bytes(b"x" * (65536 - free))
            return disk

        yield fill


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system that nobody can write to, root included."""
    disk = tmp_path / "read_only"
    with _mounted(disk, "ro,size=64k"):
        yield disk


class _mounted:  # noqa: N801 — reads as a verb
    def __init__(self, disk: Path, options: str) -> None:
        self.disk, self.options = disk, options

    def __enter__(self) -> None:
        self.disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", self.options, "tmpfs", str(self.disk)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("needs root and the right to mount a small file system")

    def __exit__(self, *error: object) -> None:
        subprocess.run(["umount", str(self.disk)], check=True)
