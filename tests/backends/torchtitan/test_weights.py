"""Seeded weights in TorchTitan's modules: the same bits on every layout, and back under Hugging Face's names."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from primus_app.backends.hf_names import hf_parameters, initial_std
from primus_app.backends.seeded import seeded_normal
from primus_app.config.schema import ModelConfig

WORKER = Path(__file__).with_name("sharded_worker.py")
ROOT = Path(__file__).parents[3]
TINY = ["llama_tiny", "qwen3_tiny", "qwen3_moe_tiny", "deepseek_v3_tiny", "gpt_oss_tiny"]


@pytest.mark.parametrize(("name", "tied"), [(name, False) for name in TINY] + [(name, True) for name in TINY[:3]])
def test_export_gives_back_the_seeded_tensors(name: str, tied: bool, model_of: Any, seeded_model: Callable[..., Any]) -> None:
    from primus_app.backends.torchtitan.model.build import FAMILIES
    from primus_app.backends.torchtitan.weights import export_hf

    model = model_of(name, tie_word_embeddings=tied)
    module = seeded_model(model, 5)
    exported = export_hf([module], FAMILIES[model.family].adapter(module.config, None))
    biases = {name: exported.pop(name) for name in list(exported) if name.endswith("e_score_correction_bias")}
    assert all(not bias.any() for bias in biases.values())
    assert len(biases) == (3 if name == "deepseek_v3_tiny" else 0)
    assert {key: tuple(value.shape) for key, value in exported.items()} == {weight.name: weight.shape for weight in hf_parameters(model)}
    for weight in hf_parameters(model):
        if weight.kind in ("normal", "residual_output"):
            expected = seeded_normal(5, weight.name, weight.shape, initial_std(model, weight.kind))
            assert torch.equal(exported[weight.name], torch.from_numpy(expected)), weight.name


def test_weights_depend_on_the_seed(model_of: Any, seeded_model: Callable[..., Any]) -> None:
    model = model_of("llama_tiny")
    first, again, other = (seeded_model(model, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


@pytest.mark.parametrize("name", ["llama_tiny", "deepseek_v3_tiny", "gpt_oss_tiny"])
def test_a_pipeline_stage_has_the_weights_of_the_whole(name: str, model_of: Any, seeded_model: Callable[..., Any]) -> None:
    from primus_app.backends.torchtitan.model.build import FAMILIES
    from primus_app.backends.torchtitan.weights import init_seeded

    model = model_of(name)
    whole = seeded_model(model, 5)
    last = seeded_model(model, 6)
    last.tok_embeddings = None
    del last.layers["0"], last.layers["2"]
    init_seeded([last], model, 5, FAMILIES[model.family].adapter(last.config, None))
    stage = dict(last.named_parameters())
    assert {key.split(".")[1] for key in stage if key.startswith("layers.")} == {"1", "3"}
    assert all(torch.equal(value, whole.get_parameter(key)) for key, value in stage.items())


def test_a_parameter_without_a_name_is_refused(model_of: Any, seeded_model: Callable[..., Any]) -> None:
    from primus_app.backends.torchtitan.model.build import FAMILIES
    from primus_app.backends.torchtitan.weights import init_seeded

    model = model_of("llama_tiny")
    module = seeded_model(model, 5)
    module.norm.register_parameter("extra", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(RuntimeError, match=r"no name in Hugging Face's checkpoint of llama_tiny: norm\.extra"):
        init_seeded([module], model, 5, FAMILIES[model.family].adapter(module.config, None))


SHARDED = [
    ("llama_tiny", {"vocab_size": 321, "tie_word_embeddings": True}, (2, 1, 1)),
    ("qwen3_moe_tiny", {}, (2, 1, 1)),
    ("deepseek_v3_tiny", {}, (2, 1, 2)),
    ("qwen3_tiny", {}, (2, 2, 1)),
    ("deepseek_v3_tiny", {}, (2, 2, 2)),
]
"""Models and layouts: degrees of dp_shard, tp and ep."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes", "layout"), SHARDED)
def test_shards_make_the_whole_bit_for_bit_and_compute_the_same(
    name: str, changes: dict[str, Any], layout: tuple[int, int, int], model_of: Callable[..., ModelConfig], tmp_path: Path
) -> None:
    (tmp_path / "model.json").write_text(model_of(name, **changes).model_dump_json())
    report = run_sharded(tmp_path, layout)
    assert report["same_names"]
    assert report["different_weights"] == []
    assert report["drawn_beside_own"] == 0
    assert report["relative_loss"] < 1e-6
    assert report["relative_gradient"] < 1e-5


def run_sharded(folder: Path, layout: tuple[int, int, int]) -> dict[str, Any]:
    dp_shard, tp, ep = layout
    world = dp_shard * tp
    command = [
        sys.executable,
        str(WORKER),
        str(folder / "model.json"),
        *map(str, (dp_shard, tp, ep)),
        str(folder / "meet"),
        str(folder / "out"),
    ]
    environment = {**os.environ, "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ranks = [subprocess.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(world)]
    try:
        assert [rank.wait(timeout=240) for rank in ranks] == [0] * world
    finally:
        for rank in ranks:
            rank.kill()
    report: dict[str, Any] = json.loads((folder / "out").read_text())
    return report
