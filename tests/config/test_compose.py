"""Composition: the user's own folder, overrides read one by one, and Hydra left as it was."""

from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from primus_app.config.compose import Request, compose, groups, hydra_ready, models_with
from primus_app.config.errors import UserError
from primus_app.config.load import load_config, prepare_model
from primus_app.config.location import conf_dir
from primus_app.config.overrides import examine, examine_shape, override_value


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the user's with a model that is smaller than llama_tiny, in a path that needs quoting."""
    folder = tmp_path / "it's, (mine)"
    (folder / "model/more").mkdir(parents=True)
    for name in ("mine", "more/deep"):
        (folder / "model" / f"{name}.yaml").write_text("defaults: [/model/llama_tiny@_here_, _self_]\nname: mine\nhidden_size: 64\n")
    return folder


@pytest.mark.parametrize("option", ["mine", "more/deep"])
def test_an_option_of_the_users_own(mine: Path, option: str) -> None:
    config = load_config(Request((f"model={option}", "training.steps=7"), config_dir=str(mine)), hardware="cpu")
    assert (config.model.name, config.model.hidden_size, config.model.num_hidden_layers) == ("mine", 64, 4)


def test_a_primary_configuration_of_the_users_own(mine: Path) -> None:
    (mine / "big.yaml").write_text("defaults: [config, _self_, override model: mine]\ntraining: {steps: 9}\n")
    config = load_config(Request(("training.seq_len=64",), "big", str(mine)), hardware="cpu")
    assert (config.training.steps, config.training.seq_len, config.model.hidden_size) == (9, 64, 64)


def test_groups_of_both_folders(mine: Path) -> None:
    assert groups()["precision"] == ["bf16", "fp32"]
    assert {"mine", "more/deep", "llama_tiny"} <= set(groups(str(mine))["model"])
    assert "hydra" not in groups()
    for group, options in groups().items():
        assert options == sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def test_models_with_a_section() -> None:
    assert models_with("mla") == ["deepseek_v3_tiny", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3"]
    assert models_with("no_such") == []


def test_hydra_is_left_as_it_was(tmp_path: Path) -> None:
    GlobalHydra.instance().clear()
    with hydra_ready():
        outer = GlobalHydra.instance().hydra
        with hydra_ready():
            assert GlobalHydra.instance().hydra is outer
        with hydra_ready(str(tmp_path)):
            assert GlobalHydra.instance().hydra is not outer
        assert GlobalHydra.instance().hydra is outer
    assert GlobalHydra.instance().hydra is None


def test_plain_data_without_the_experiment() -> None:
    prepare_model(Request())
    with hydra_ready():
        data = compose(Request(("experiment=quick", "exp_name=${model.name}")))
    assert "experiment" not in data
    assert "hydra" not in data
    assert (data["training"]["steps"], data["exp_name"]) == (20, "llama_tiny")


def test_what_was_typed_wins_over_the_experiment() -> None:
    config = load_config(Request(("training.steps=3", "experiment=quick")), hardware="cpu")
    assert (config.training.steps, config.checkpoint.every) == (3, 0)


def test_the_detected_hardware_stands_for_auto_only() -> None:
    assert load_config(Request(), hardware="mi300x").hardware.name == "mi300x"
    assert load_config(Request(("hardware=auto",)), hardware="h100").hardware.name == "h100"
    assert load_config(Request(("hardware='auto'",)), hardware="h100").hardware.name == "h100"
    assert load_config(Request(("hardware=cpu",)), hardware="h100").hardware.name == "cpu"


def test_hardware_that_an_experiment_chooses_is_not_this_machines() -> None:
    assert load_config(Request(("experiment=throughput",)), hardware="cpu").hardware.name == "mi300x"
    assert load_config(Request(("experiment=throughput", "hardware=auto")), hardware="cpu").hardware.name == "cpu"
    assert load_config(Request(("experiment=quick",)), hardware="h100").hardware.name == "h100"


def test_a_model_by_its_config_json_from_a_file_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,'
        ' "intermediate_size": 128, "vocab_size": 320, "max_position_embeddings": 256, "rms_norm_eps": 1e-5}'
    )
    (tmp_path / "experiment/mine.yaml").write_text(
        f"# @package _global_\ndefaults: [{{override /model: hf}}]\nmodel:\n  path: {tmp_path}\n"
    )
    typed = load_config(Request(("model=hf", f"model.path={tmp_path}")), hardware="cpu")
    named = load_config(Request(("experiment=mine",), config_dir=str(tmp_path)), hardware="cpu")
    assert named == typed
    assert named.model.num_hidden_layers == 2


def test_examine_keeps_the_good_as_typed() -> None:
    prepare_model(Request())
    with hydra_ready():
        examined = examine(Request(("model=qwen3_tiny", "modle=x", "training.steps=1,2", "training.seq_len=64")), multirun=True)
    assert examined.good == ("model=qwen3_tiny", "training.steps=1,2", "training.seq_len=64")
    assert [problem.where for problem in examined.problems] == ["modle=x"]


def test_sweeps_are_read_value_by_value() -> None:
    examined = examine_shape(Request(("model=llama_tiny,lama3_8b", "precision=fp32,bf16", "model=glob(qwen3_t*)")), multirun=True)
    assert examined.good == ("precision=fp32,bf16",)
    assert [problem.what for problem in examined.problems] == ["conf/model/ has no 'lama3_8b'", "list the options by name"]
    assert examined.problems[1].fix == ("write model=qwen3_tiny",)


def test_a_broken_configuration_of_the_users_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [config, _self_]\ntraining: {steps: [\n")
    with pytest.raises(UserError, match=r"mine\.yaml:3: is not valid YAML"):
        load_config(Request(("training.stpes=3",), "mine", str(tmp_path)), hardware="cpu")


@pytest.mark.parametrize(
    ("overrides", "value"),
    [(["a=1", "a=2"], "2"), (["+a='x y'"], "x y"), (["b.a=1"], None), ([], None)],
)
def test_override_value(overrides: list[str], value: str | None) -> None:
    assert override_value(overrides, "a") == value
