"""Reading tensors out of safetensors files, held against the library's own reader."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from primus_app.backends.hf_names import HfParameter
from primus_app.backends.weight_sources import SafetensorsReader

WEIGHT = HfParameter("model.weight", (300, 40), "normal")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_any_rectangle_has_the_bits_that_the_library_reads(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file({"first": torch.ones(3, dtype=dtype), WEIGHT.name: torch.randn(WEIGHT.shape).to(dtype)}, tmp_path / "model.safetensors")
    expected, reader = load_file(tmp_path / "model.safetensors")[WEIGHT.name], SafetensorsReader(tmp_path)
    assert torch.equal(reader.whole(WEIGHT), expected)
    assert torch.equal(reader.part(WEIGHT, slice(7, 211), slice(0, 40)), expected[7:211])
    assert torch.equal(reader.part(WEIGHT, slice(7, 211), slice(3, 9)), expected[7:211, 3:9])
    assert reader.part(WEIGHT, slice(7, 7), slice(0, 40)).shape == (0, 40)


def test_what_is_read_can_be_changed_and_the_file_does_not_notice(tmp_path: Path) -> None:
    save_file({WEIGHT.name: torch.randn(WEIGHT.shape)}, tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    SafetensorsReader(tmp_path).whole(WEIGHT).zero_()
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_file_that_was_cut_off_meanwhile_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    save_file({WEIGHT.name: torch.randn(WEIGHT.shape)}, tmp_path / "model.safetensors")
    reader = SafetensorsReader(tmp_path)
    os.truncate(tmp_path / "model.safetensors", 4096)
    with pytest.raises((OSError, ValueError)):
        reader.whole(WEIGHT)
