"""What ranks are given, and that the user's own values win."""

import os
from pathlib import Path

import pytest
import yaml

from primus_app.config.location import conf_dir
from primus_app.config.schema import Config, HardwareConfig
from primus_app.launch.environment import rank_environment

CORES = len(os.sched_getaffinity(0))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    sections = yaml.safe_load((conf_dir() / "config.yaml").read_text())
    model = sections["model"] | yaml.safe_load((conf_dir() / "model" / "llama_tiny.yaml").read_text())
    names = ("training", "optimizer", "precision", "data", "parallel", "backend", "cluster", "hardware", "checkpoint", "logging")
    place = {"user_name": "ada", "workspace": str(tmp_path), "model": model}
    return Config.model_validate({**place, **{name: sections[name] for name in names}})


def on(config: Config, name: str) -> Config:
    hardware = HardwareConfig.model_validate(yaml.safe_load((conf_dir() / "hardware" / f"{name}.yaml").read_text()))
    return config.model_copy(update={"hardware": hardware})


def values(config: Config, ranks: int = 1, environment: dict[str, str] | None = None) -> dict[str, tuple[str, str]]:
    return {given.name: (given.value, given.source) for given in rank_environment(config, ranks, environment or {})}


def test_ranks_share_the_cores_but_one(config: Config) -> None:
    assert values(config, 1)["OMP_NUM_THREADS"] == (str(max(1, CORES - 1)), "primus_app")
    assert values(config, 4 * CORES)["OMP_NUM_THREADS"] == ("1", "primus_app")


def test_what_the_user_has_set_wins(config: Config) -> None:
    assert values(config, 1, {"OMP_NUM_THREADS": "7"})["OMP_NUM_THREADS"] == ("7", "user")


def test_amd_devices_get_their_variables_and_others_do_not(config: Config) -> None:
    amd = values(on(config, "mi300x"))
    assert amd["HSA_NO_SCRATCH_RECLAIM"] == ("1", "primus_app")
    assert "RCCL_WARP_SPEED_AUTO" not in amd
    assert "HSA_KERNARG_POOL_SIZE" not in amd
    for name in ("h100", "cpu"):
        assert not any(key.startswith(("HSA_", "RCCL_")) for key in values(on(config, name)))


@pytest.mark.parametrize("name", ["mi350x", "mi355x"])
def test_both_cards_of_gfx950_are_kept_from_nan(config: Config, name: str) -> None:
    assert values(on(config, name))["RCCL_WARP_SPEED_AUTO"] == ("0", "primus_app")


def test_a_deterministic_megatron_gets_what_its_engines_ask_for(config: Config) -> None:
    """Transformer Engine ends the rank without (megatron-core's extensions/transformer_engine.py), torch at the first sum in cuBLAS."""
    asked = {"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    megatron = config.model_copy(update={"backend": config.backend.model_copy(update={"name": "megatron"})})
    deterministic = megatron.model_copy(update={"training": config.training.model_copy(update={"deterministic": True})})
    found = values(on(deterministic, "h100"))
    assert {name: found[name] for name in asked} == {name: (value, "primus_app") for name, value in asked.items()}
    for other in (on(megatron, "h100"), on(deterministic, "cpu")):
        assert not asked.keys() & values(other).keys()
