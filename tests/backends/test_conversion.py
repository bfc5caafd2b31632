"""Weights from a Hugging Face folder into an engine's format and back: every bit, for every family that the engine has."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from primus_app.backends.converted_folder import write_folder
from primus_app.backends.given_weights import find_given
from primus_app.backends.initial_weights import resolve_load
from primus_app.config.errors import UserError

pytestmark = pytest.mark.slow

Folder = Callable[[str], Path]
TORCHTITAN = ("llama", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss")
MEGATRON = (*TORCHTITAN, "qwen2", "mixtral")
EACH = [(family, "torchtitan") for family in TORCHTITAN] + [(family, "megatron") for family in MEGATRON]


def convert(source: Path, target: str, output: Path, dtype: str | None = None) -> Path:
    write_folder(find_given(source, None), target, output, dtype, lambda done, total: None)
    return output


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name].dtype != expected[name].dtype or not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize(("family", "engine"), EACH)
def test_there_and_back_is_every_bit(family: str, engine: str, hf_folder: Folder, tmp_path: Path) -> None:
    source = hf_folder(family)
    back = convert(convert(source, engine, tmp_path / "native"), "hf", tmp_path / "back")
    assert_same(weights(back), weights(source))
    assert json.loads((back / "config.json").read_text()) == json.loads((source / "config.json").read_text())


@pytest.mark.parametrize("engine", ["torchtitan", "megatron"])
def test_types_are_kept_or_become_what_is_asked_for(engine: str, hf_folder: Folder, tmp_path: Path) -> None:
    """DeepSeek's selection bias stays in float32, as transformers has it."""
    full = weights(hf_folder("deepseek_v3"))
    half = {name: tensor if name.endswith("e_score_correction_bias") else tensor.bfloat16() for name, tensor in full.items()}
    rounded = convert(convert(hf_folder("deepseek_v3"), engine, tmp_path / "bf16", "bf16"), "hf", tmp_path / "rounded")
    assert_same(weights(rounded), half)
    assert json.loads((rounded / "config.json").read_text())["dtype"] == "bfloat16"
    again = convert(convert(rounded, engine, tmp_path / "half"), "hf", tmp_path / "again")
    assert_same(weights(again), half)
    wide = convert(convert(rounded, engine, tmp_path / "wide", "fp32"), "hf", tmp_path / "full")
    assert_same(weights(wide), {name: tensor.float() for name, tensor in half.items()})


def test_the_same_numbers_have_the_same_name_in_every_format(hf_folder: Folder, tmp_path: Path) -> None:
    source = find_given(hf_folder("qwen3"), None)
    there = find_given(convert(hf_folder("qwen3"), "megatron", tmp_path / "there"), None)
    rounded = find_given(convert(hf_folder("qwen3"), "megatron", tmp_path / "rounded", "bf16"), None)
    assert source.identity.startswith("safetensors:")
    assert there.identity == source.identity
    assert rounded.identity == f"{source.identity}:BF16"


def test_what_an_engine_has_not_is_refused_by_name(hf_folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="qwen2"):
        convert(hf_folder("qwen2"), "torchtitan", tmp_path / "native")
    assert list(tmp_path.iterdir()) == []


def test_tensors_of_another_model_are_refused(hf_folder: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / "config.json").write_text((hf_folder("qwen3") / "config.json").read_text())
    found = weights(hf_folder("qwen3"))
    found["model.layers.9.mlp.up_proj.weight"] = found.pop("model.norm.weight")
    save_file(found, folder / "model.safetensors")
    with pytest.raises(UserError) as caught:
        find_given(folder, None)
    assert "the weights hold 1 tensor that it does not use (model.layers.9.mlp.up_proj.weight)" in str(caught.value)
    assert "it needs 1 tensor that is not there (model.norm.weight)" in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "gone"])
@pytest.mark.parametrize("engine", ["torchtitan", "megatron"])
def test_a_damaged_folder_leaves_nothing_behind(engine: str, damage: str, hf_folder: Folder, tmp_path: Path) -> None:
    native = convert(hf_folder("llama"), engine, tmp_path / "native")
    [file] = native.glob("*.distcp")
    file.write_bytes(file.read_bytes()[:50_000]) if damage == "cut" else file.unlink()
    with pytest.raises(UserError) as caught:
        convert(native, "hf", tmp_path / "hf")
    assert str(native) in str(caught.value)
    assert "damaged" in str(caught.value)
    assert "\n\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["native"]


@pytest.mark.parametrize("target", ["hf", "torchtitan", "megatron"])
def test_an_interrupt_leaves_nothing_behind(target: str, hf_folder: Folder, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(find_given(hf_folder("llama"), None), target, tmp_path / "out", None, interrupt)
    assert list(tmp_path.iterdir()) == []


CHANGES = {
    "num_hidden_layers=1": r"the weights hold 9 tensors that it does not use \(model\.layers\.1\..* and 6 more\)",
    "num_hidden_layers=3": r"it needs 9 tensors that are not there \(model\.layers\.2\..* and 6 more\)",
    "vocab_size=40": r"1 tensor has another shape \(model\.embed_tokens\.weight \(320, 64\), by config.json \(40, 64\)",
}


@pytest.mark.parametrize("engine", ["hf", "torchtitan", "megatron"])
def test_a_config_json_of_another_model_is_refused(engine: str, hf_folder: Folder, tmp_path: Path) -> None:
    native = convert(hf_folder("llama"), engine, tmp_path / "native")
    original = json.loads((native / "config.json").read_text())
    (native / "config.json").write_text(json.dumps(original | {"rms_norm_eps": 1e-4}))
    find_given(native, None)
    for change, said in CHANGES.items():
        key, _, value = change.partition("=")
        (native / "config.json").write_text(json.dumps(original | {key: int(value)}))
        with pytest.raises(UserError, match="config.json and the weights beside it disagree: " + said):
            find_given(native, None)


@pytest.mark.parametrize("engine", ["torchtitan", "megatron"])
def test_files_that_are_missing_or_cut_are_found_without_reading_them(engine: str, hf_folder: Folder, tmp_path: Path) -> None:
    native = convert(hf_folder("llama"), engine, tmp_path / "native")
    for name in [".metadata", "__0_0.distcp", *(["common.pt"] if engine == "megatron" else []), "weights.json"]:
        content = (native / name).read_bytes()
        (native / name).unlink()
        with pytest.raises(UserError, match=f"{name} is missing"):
            find_given(native, None)
        (native / name).write_bytes(content[:-2])
        with pytest.raises(UserError, match=f"{name}: this file cannot be read" if name == "weights.json" else f"{name} has .* bytes of"):
            find_given(native, None)
        (native / name).write_bytes(content)
    (native / "weights.json").write_text("{}")
    with pytest.raises(UserError, match="identity is missing; dtypes is missing"):
        find_given(native, None)


def test_a_tensor_that_cannot_be_read_is_told_by_its_file_without_torchs_words(hf_folder: Folder, tmp_path: Path) -> None:
    native = convert(hf_folder("llama"), "torchtitan", tmp_path / "native")
    file = native / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    content[4:200] = bytes(196)  # Its archive begins and ends as it should.
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged, or were removed meanwhile \(__0_0\.distcp is damaged at \S+ \(\w+\)\)") as caught:
        convert(native, "hf", tmp_path / "hf")
    assert str(caught.value).count(str(native)) == 1
    assert "torch" not in caught.value.problems[0].what
    assert list(tmp_path.iterdir()) == [native]


def test_what_is_not_as_it_was_written_is_found(hf_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_app.backends import native_tensors

    original = native_tensors.write_step

    def forgetful(folder: Path, tensors: Any, *rest: Any) -> None:
        original(folder, tensors[1:], *rest)

    monkeypatch.setattr(native_tensors, "write_step", forgetful)
    with pytest.raises(UserError, match=r"not as they were written: tok_embeddings\.weight") as caught:
        convert(hf_folder("qwen3"), "torchtitan", tmp_path / "native")
    assert caught.value.code == 3
    assert list(tmp_path.iterdir()) == []


def test_files_of_5_gb_have_an_index(hf_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller here."""
    from primus_app.backends import safetensors_writer

    monkeypatch.setattr(safetensors_writer, "FILE_BYTES", 100_000)
    folder = convert(hf_folder("qwen3_moe"), "hf", tmp_path / "several")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(folder.glob("*.safetensors"))
    assert [file.name for file in files] == [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
    assert len(files) > 3
    assert index["weight_map"] == {name: file.name for file in files for name in load_file(file)}
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in weights(folder).values())
    assert_same(weights(folder), weights(hf_folder("qwen3_moe")))


def test_a_large_tensor_has_a_file_alone() -> None:
    from primus_app.backends.safetensors_writer import Entry, divide

    entries = [Entry(str(size), "F16", (size,)) for size in (3, 4, 20, 5, 5)]
    assert [[entry.num_bytes for entry in file] for file in divide(entries, 20)] == [[6, 8], [40], [10, 10]]


@pytest.mark.parametrize("engine", ["torchtitan", "megatron"])
def test_a_new_run_may_start_from_it(engine: str, hf_folder: Folder, tmp_path: Path) -> None:
    from primus_app.config.schema import Config
    from tests.backends.test_initial_weights import SECTIONS

    native = convert(hf_folder("qwen3"), engine, tmp_path / "native")
    model = find_given(native, None).model.model_dump()
    sections: dict[str, Any] = {name: {} for name in SECTIONS} | {"backend": {"name": "torchtitan"}}
    place = {"user_name": "ada", "exp_name": None, "workspace": str(tmp_path / "output")}
    config = Config.model_validate({**place, **sections, "model": model, "checkpoint": {"load": str(native)}})
    assert resolve_load(config).checkpoint.load_digest == find_given(hf_folder("qwen3"), None).identity
    other = config.model_copy(update={"model": config.model.model_copy(update={"rope_theta": 7.0})})
    with pytest.raises(UserError, match="rope_theta"):
        resolve_load(other)
