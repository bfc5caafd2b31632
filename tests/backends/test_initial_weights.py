"""checkpoint.load: what is taken, what names it, and everything that is refused before a run starts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.numpy import load_file, save_file

from primus_app.backends.hf_names import hf_buffers, hf_parameters
from primus_app.backends.initial_weights import check_load, resolve_load
from primus_app.config.errors import UserError
from primus_app.config.huggingface_export import config_json
from primus_app.config.schema import Config, ModelConfig
from primus_app.run.directory import RunDirectory
from primus_app.run.open import open_run, record_start
from primus_app.run.record import read_record

SECTIONS = ("training", "optimizer", "precision", "data", "parallel", "backend", "cluster", "hardware", "logging")
Make = Callable[..., Config]


@pytest.fixture
def make(tmp_path: Path, model_of: Callable[..., ModelConfig]) -> Make:
    """``make(exp_name, load=…, model=…)``: a configuration in a workspace of the test's own."""

    def build(exp_name: str | None, model: str = "llama_tiny", changes: dict[str, Any] | None = None, **checkpoint: Any) -> Config:
        sections: dict[str, Any] = {name: {} for name in SECTIONS} | {"backend": {"name": "torchtitan"}}
        place = {"user_name": "ada", "exp_name": exp_name, "workspace": str(tmp_path / "output")}
        return Config.model_validate(
            {**place, **sections, "model": {**model_of(model).model_dump(), **(changes or {})}, "checkpoint": checkpoint}
        )

    return build


def begin(config: Config, *steps: int) -> RunDirectory:
    """The run of ``config`` as if it had been trained, with complete checkpoints after ``steps``."""
    opened = open_run(resolve_load(config))
    record_start(opened, [], {}, [], {})
    opened.abandon()
    for step in steps:
        folder = opened.run.checkpoints_dir / f"step-{step}"
        dcp.save({"weight": torch.ones(2)}, checkpoint_id=str(folder), no_dist=True)
    return opened.run


def write_huggingface(model: ModelConfig, folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_json(model)))
    weights = {weight.name: np.full(weight.shape, 0.5, np.float32) for weight in (*hf_parameters(model), *hf_buffers(model))}
    save_file(weights, folder / "model.safetensors")
    return folder


def change(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors")


def refusal(config: Config) -> str:
    problems = check_load(config)
    assert problems
    with pytest.raises(UserError) as caught:
        resolve_load(config)
    assert [str(problem) for problem in caught.value.problems] == [str(problem) for problem in problems]
    return str(caught.value)


def test_nothing_to_load_changes_nothing(make: Make) -> None:
    config = make("new")
    assert check_load(config) == []
    assert resolve_load(config) is config


def test_of_a_run_the_newest_step_is_taken_and_named_by_run_and_step(make: Make) -> None:
    source = begin(make("source"), 2, 4)
    record = read_record(source)
    assert record is not None
    (source.checkpoints_dir / "step-6").mkdir()  # not complete
    loaded = resolve_load(make("new", load=str(source.path))).checkpoint
    assert loaded.load == str(source.checkpoints_dir / "step-4")
    assert loaded.load_digest == f"run:{record.id}/step-4"
    older = resolve_load(make("new", load=str(source.checkpoints_dir / "step-2"))).checkpoint
    assert older.load_digest == f"run:{record.id}/step-2"


def test_the_place_of_a_run_does_not_count(make: Make, tmp_path: Path) -> None:
    source = begin(make("source"), 2)
    copy = shutil.copytree(source.path, tmp_path / "elsewhere")
    here, there = (resolve_load(make("new", load=str(path))).checkpoint.load_digest for path in (source.path, copy))
    assert here == there


def test_of_a_folder_the_content_counts_and_not_the_place(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")
    copy = shutil.copytree(folder, tmp_path / "copy")
    first = resolve_load(make("new", load=str(folder))).checkpoint
    assert first.load_digest is not None
    assert first.load_digest.startswith("safetensors:")
    assert resolve_load(make("new", load=str(copy))).checkpoint.load_digest == first.load_digest
    change(copy, lambda weights: weights["model.norm.weight"].__setitem__(0, 2))
    assert resolve_load(make("new", load=str(copy))).checkpoint.load_digest != first.load_digest


@pytest.mark.parametrize("name", ["llama_tiny", "qwen3_tiny", "qwen3_moe_tiny", "deepseek_v3_tiny"])
def test_a_folder_that_is_whole_is_taken(make: Make, name: str, tmp_path: Path) -> None:
    config = make("new", name)
    folder = write_huggingface(config.model, tmp_path / "weights")
    assert check_load(make("new", name, load=str(folder))) == []


def test_the_name_and_the_deviation_of_the_model_need_not_agree(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")
    assert check_load(make("new", changes={"name": "mine", "init_std": 0.5}, load=str(folder))) == []


def test_another_architecture_is_refused_key_by_key(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")
    source = begin(make("source"), 2)
    for place in (folder, source.path):
        text = refusal(make("new", changes={"rope_theta": 5e5, "vocab_size": 512}, load=str(place)))
        assert f"model.rope_theta: 500000.0 here, 10000.0 in {place}" in text
        assert f"model.vocab_size: 512 here, 320 in {place}" in text
        assert "another architecture" in text


def test_a_section_that_only_one_side_has_is_one_difference(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")
    text = refusal(make("new", "deepseek_v3_tiny", load=str(folder)))
    assert text.count("model.moe") == 1
    assert "model.family: 'deepseek_v3' here, 'llama' in" in text


def test_missing_surplus_and_wrong_tensors_are_named_at_once(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")

    def spoil(weights: dict[str, Any]) -> None:
        del weights["model.norm.weight"]
        weights["model.layers.0.self_attn.q_proj.bias"] = np.zeros(128, np.float32)
        weights["lm_head.weight"] = np.zeros((2, 128), np.float32)
        weights["model.layers.1.mlp.up_proj.weight"] = np.zeros((352, 128), np.int8)

    change(folder, spoil)
    text = refusal(make("new", load=str(folder)))
    assert "the weights hold 1 tensor that it does not use (model.layers.0.self_attn.q_proj.bias)" in text
    assert "it needs 1 tensor that is not there (model.norm.weight)" in text
    assert "1 tensor has another shape (lm_head.weight (2, 128), by config.json (320, 128))" in text
    assert "model.layers.1.mlp.up_proj.weight is I8" in text


def test_what_transformers_passes_over_is_passed_over(make: Make, tmp_path: Path) -> None:
    config = make("new", changes={"tie_word_embeddings": True})
    folder = write_huggingface(config.model, tmp_path / "weights")
    change(folder, lambda weights: weights.update({"lm_head.weight": np.zeros((320, 128), np.float32)}))
    change(folder, lambda weights: weights.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(16, np.float32)}))
    assert check_load(make("new", changes={"tie_word_embeddings": True}, load=str(folder))) == []


def test_layers_for_multi_token_prediction_are_passed_over_where_the_file_has_them(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new", "deepseek_v3_tiny").model, tmp_path / "weights")
    change(folder, lambda weights: weights.update({"model.layers.4.enorm.weight": np.zeros(128, np.float32)}))
    config = make("new", "deepseek_v3_tiny", load=str(folder))
    assert "model.layers.4.enorm.weight" in refusal(config)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"num_nextn_predict_layers": 1}))
    assert check_load(config) == []


def test_a_file_that_is_cut_off_is_named_with_both_sizes(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert f"{file}: cut off: {len(whole) - 100:,} bytes, and its header announces {len(whole):,}" in refusal(make("new", load=str(folder)))
    for start in (b"", b"no weights at all"):
        file.write_bytes(start)
        assert f"{file}: no safetensors file" in refusal(make("new", load=str(folder)))


def test_files_that_the_index_names_and_are_not_there_are_all_named(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    text = refusal(make("new", load=str(folder)))
    assert f"{folder / 'model-1.safetensors'}: No such file" in text
    assert f"{folder / 'model-2.safetensors'}: No such file" in text
    index.write_text("{")
    assert f"{index} cannot be read" in refusal(make("new", load=str(folder)))
    index.unlink()
    (folder / "pytorch_model.bin").touch()
    assert "save_pretrained" in refusal(make("new", load=str(folder)))


def test_what_is_no_source_of_weights_is_refused_with_what_is_near(make: Make, tmp_path: Path) -> None:
    source = begin(make("source"))
    assert "has no complete checkpoint" in refusal(make("new", load=str(source.path)))
    assert "no such folder" in refusal(make("new", load=str(tmp_path / "nowhere")))
    assert "is a file" in refusal(make("new", load=str(source.run_file)))
    assert str(source.path) in refusal(make("new", load=str(source.path.parent)))
    begun = begin(make("begun"), 2)
    text = refusal(make("new", load=str(begun.checkpoints_dir / "step-3")))
    assert "step 3" in text
    assert "complete: step 2" in text


def test_a_digest_that_is_given_is_held_against_the_weights(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")
    digest = resolve_load(make("new", load=str(folder))).checkpoint.load_digest
    assert check_load(make("new", load=str(folder), load_digest=digest)) == []
    assert "'safetensors:0' is expected" in refusal(make("new", load=str(folder), load_digest="safetensors:0"))
    assert "no effect without checkpoint.load" in str(check_load(make("new", load_digest=digest))[0])


def test_native_weights_have_no_effect_beside_loaded_ones(make: Make, tmp_path: Path) -> None:
    folder = write_huggingface(make("new").model, tmp_path / "weights")
    problems = check_load(make("new", changes={"init": "native"}, load=str(folder)))
    assert [problem.where for problem in problems] == ["model.init"]


def test_a_run_with_checkpoints_of_its_own_needs_its_source_no_more(make: Make) -> None:
    source = begin(make("source"), 2)
    config = make("new", load=str(source.path))
    begin(config, 1)
    first = resolve_load(config).checkpoint
    shutil.rmtree(source.path)
    assert check_load(config) == []
    assert resolve_load(config).checkpoint == first


def test_a_run_without_one_starts_from_the_step_it_started_from(make: Make) -> None:
    """The source has gone on training in the meantime."""
    source = begin(make("source"), 2)
    config = make("new", load=str(source.path))
    begin(config)
    first = resolve_load(config).checkpoint
    later = source.checkpoints_dir / "step-4"
    later.mkdir()
    (later / ".metadata").touch()
    assert resolve_load(config).checkpoint == first
    shutil.rmtree(source.checkpoints_dir / "step-2")
    assert "step 2" in refusal(config)


def test_other_weights_are_another_run(make: Make) -> None:
    source = begin(make("source"), 2, 4)
    begin(make("new", load=str(source.path)), 1)
    for again in (make("new"), make("new", load=str(source.checkpoints_dir / "step-2"))):
        with pytest.raises(UserError) as caught:
            open_run(resolve_load(again))
        assert caught.value.problems[0].where == "checkpoint.load_digest"
