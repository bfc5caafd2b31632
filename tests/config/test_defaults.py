"""conf/ and the schema say the same: every key once, with one default, and every option composes."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from primus_app.config.compose import Request, groups
from primus_app.config.kinds import schema_fields, section_of
from primus_app.config.load import load_config
from primus_app.config.location import conf_dir
from primus_app.config.schema import Config
from primus_app.config.validate import validate
from primus_app.run.snapshot import config_text, read_config

FOREIGN_TO_THE_SCHEMA = ("defaults", "hydra")


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    text = yaml.safe_load((conf_dir() / "config.yaml").read_text())
    return {key: value for key, value in text.items() if key not in FOREIGN_TO_THE_SCHEMA}


def leaves(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        is_section = f"{prefix}{key}" in schema_fields() and section_of(schema_fields()[f"{prefix}{key}"].annotation)
        found |= leaves(value, f"{prefix}{key}.") if is_section and value is not None else {prefix + key: value}
    return found


def schema_defaults() -> dict[str, Any]:
    """Every key that has a default, sections that may be null as one key; the keys of a model's file have none."""
    found: dict[str, Any] = {}
    for key, field in schema_fields().items():
        inside_a_null = any(key.startswith(f"model.{name}.") for name in ("moe", "mla", "rope_scaling"))
        is_section = section_of(field.annotation) and key not in ("model.moe", "model.mla", "model.rope_scaling")
        if not inside_a_null and not is_section and not field.is_required():
            found[key] = list(field.default) if isinstance(field.default, tuple) else field.default
    return found


def test_every_key_with_the_schemas_default(shown: dict[str, Any]) -> None:
    of_conf = leaves(shown)
    assert of_conf.pop("user_name") == "${oc.env:USER,user}"
    assert of_conf == schema_defaults()
    assert all(type(of_conf[key]) is type(value) for key, value in schema_defaults().items()), "0 is not 0.0"


def test_only_a_models_file_may_have_keys_without_default() -> None:
    required = {key for key, field in schema_fields().items() if field.is_required() and not section_of(field.annotation)}
    assert {key for key in required if not key.startswith("model.")} == {"user_name"}


def test_every_group_of_conf_is_in_the_defaults_list() -> None:
    listed = yaml.safe_load((conf_dir() / "config.yaml").read_text())["defaults"]
    chosen = {key: value for entry in listed if isinstance(entry, dict) for key, value in entry.items() if not key.startswith("override")}
    assert set(chosen) == set(groups())
    assert chosen.pop("experiment") is None
    assert all(option in groups()[group] for group, option in chosen.items())


def test_each_file_names_itself() -> None:
    """model=x gives model.name x, and so on, so that a record says what was chosen."""
    for group in ("model", "parallel", "hardware", "precision", "optimizer", "backend", "cluster"):
        for option in groups()[group]:
            if (group, option) != ("model", "hf"):
                assert yaml.safe_load((conf_dir() / group / f"{option}.yaml").read_text())["name"] == option


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "option"), [(group, option) for group, options in groups().items() for option in options if option != "hf"]
)
def test_every_option_composes(group: str, option: str) -> None:
    config = load_config(Request((f"{group}={option}",)), hardware="cpu")
    assert group == "experiment" or getattr(getattr(config, group), "name", option) in (option, "cpu")


def test_composing_twice_gives_the_same() -> None:
    assert load_config(Request(), hardware="cpu") == load_config(Request(), hardware="cpu")


@pytest.mark.parametrize("overrides", [(), ("model=deepseek_v3_tiny", "parallel=tp2", "optimizer.lr=1e-5"), ("model=gpt_oss_20b",)])
def test_a_dumped_configuration_composes_to_itself(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    config = load_config(Request((*overrides, "exp_name='a b/c'", "+backend.native.a.b=1e-5")), hardware="mi300x")
    (tmp_path / "config.yaml").write_text(config_text(config), encoding="utf-8")
    assert read_config(tmp_path / "config.yaml") == config
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        data = OmegaConf.to_container(compose("config"), resolve=True)
    assert isinstance(data, dict)
    assert validate({str(key): value for key, value in data.items()}) == config


def test_the_users_login_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "ada")
    assert load_config(Request(), hardware="cpu").user_name == "ada"
    monkeypatch.delenv("USER")
    assert load_config(Request(), hardware="cpu").user_name
    assert os.environ["USER"]


def test_a_configuration_is_frozen() -> None:
    config = load_config(Request(), hardware="cpu")
    with pytest.raises(ValueError, match="frozen"):
        config.training.steps = 5  # type: ignore[misc]
    assert isinstance(config, Config)
