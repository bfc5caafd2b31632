"""TorchTitan's names in Primus' experiments: TorchTitan's keys as import-titan tells them, Primus' defaults, and the keys it adds."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_app.backends.amd_primus import convert, read_experiment
from primus_app.backends.amd_primus.named import TITAN_MODULE
from primus_app.backends.amd_primus.presets import TITAN
from primus_app.backends.amd_primus.titan import PRIMUS_KEYS
from primus_app.backends.imported.converted import Converted
from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.torchtitan.job_file.fields import FIELDS
from primus_app.backends.torchtitan.job_file.flavors import DEEPSEEK, LLAMA3, QWEN3
from primus_app.cli.import_primus import refusals


def experiment(folder: Path, preset: str = "llama3.1_8B", devices: int | None = 8, **sections: Any) -> Converted:
    module = {"framework": "torchtitan", "config": "pre_trainer.yaml", "model": f"{preset}.yaml", "overrides": sections}
    keys = {"work_group": "team", "user_name": "ada", "exp_name": "first", "workspace": "out", "modules": {"pre_trainer": module}}
    file = folder / "exp.yaml"
    file.write_text(yaml.safe_dump(keys, sort_keys=False))
    return convert(read_experiment(str(file), {}), devices)


def rows_of(converted: Converted) -> dict[str, Row]:
    return {row.key: row for row in converted.rows}


def test_the_numbers_of_a_file_are_those_of_the_command(tmp_path: Path) -> None:
    converted = experiment(
        tmp_path,
        training={"steps": 50, "seq_len": 4096, "local_batch_size": 2, "mock_data": True},
        optimizer={"lr": 3e-4},
        lr_scheduler={"warmup_steps": 10},
        parallelism={"tensor_parallel_degree": 2, "data_parallel_shard_degree": -1},
        activation_checkpoint={"mode": "full"},
    )
    assert converted.problems == ()
    wanted = {"model=llama3_1_8b", "data=mock", "training.steps=50", "training.seq_len=4096", "optimizer.lr=0.0003", "parallel.tp=2"}
    wanted |= {"training.recompute=full", "optimizer.warmup_steps=10", "precision=bf16", "work_group=team", "exp_name=first"}
    # 2 samples on each of 8 / 2 data-parallel ranks.
    wanted |= {"training.global_batch_size=8", "cluster.nodes=1", "cluster.devices_per_node=8"}
    assert wanted <= set(converted.overrides)
    assert refusals(converted.overrides) == []


def test_what_a_file_leaves_out_is_primus_default(tmp_path: Path) -> None:
    """From primus/configs/modules/torchtitan/pre_trainer.yaml: mock data, a compiled model, nothing recomputed, no checkpoints."""
    converted = experiment(tmp_path)
    assert {"data=mock", "backend.native.compile.enable=true", "checkpoint=none"} <= set(converted.overrides)
    assert not any(text.startswith(("training.recompute", "data.", "backend=")) for text in converted.overrides)
    assert "training.seq_len=2048" in converted.overrides


def test_text_and_its_tokenizer_on_the_hub(tmp_path: Path) -> None:
    converted = experiment(tmp_path, training={"mock_data": False, "dataset_path": "/d/c4"})
    assert {"data=text", "data.path=/d/c4", "data.tokenizer=meta-llama/Llama-3.1-8B"} <= set(converted.overrides)
    row = rows_of(converted)["model.hf_assets_path"]
    assert row.fate is Fate.DIFFERS
    assert "is not downloaded" in row.note


@pytest.mark.parametrize("name", TITAN)
def test_presets_are_torchtitans_flavors(name: str) -> None:
    model, flavor, _ = TITAN[name]
    known = {"llama3": LLAMA3, "qwen3": QWEN3, "deepseek_v3": DEEPSEEK}
    assert model not in known or flavor in known[model] or (model, flavor) == ("deepseek_v3", "236B")


def test_presets_for_8_bits_are_the_same_model_and_say_so(tmp_path: Path) -> None:
    rows = rows_of(experiment(tmp_path, "llama3.1_8B-fp8"))
    assert rows["model.flavor"].became == ("model=llama3_1_8b",)
    assert rows["model.converters"].fate is Fate.DIFFERS


def test_keys_that_primus_adds(tmp_path: Path) -> None:
    rows = rows_of(
        experiment(
            tmp_path,
            model={"n_layers": 4, "dim": 512},
            primus_turbo={"enable_primus_turbo": True, "enable_attention_float8": True},
            stderr_sink_level="DEBUG",
            training={"debug_moe_force_load_balance": True},
        )
    )
    assert rows["model.n_layers"].became == ("model.num_hidden_layers=4",)
    assert rows["model.dim"].fate is Fate.DIFFERS
    assert rows["primus_turbo.enable_primus_turbo"].fate is Fate.NO_MEANING
    assert rows["primus_turbo.enable_attention_float8"].fate is Fate.DIFFERS
    assert rows["stderr_sink_level"].became == ("logging.level=debug",)
    assert rows["training.debug_moe_force_load_balance"].fate is Fate.DIFFERS


@pytest.mark.parametrize(
    ("key", "near"),
    [("mock_date", "training.mock_data"), ("seq_length", "training.seq_len"), ("local_batchsize", "training.local_batch_size")],
)
def test_a_key_that_is_passed_over_is_told_with_the_nearest(key: str, near: str, tmp_path: Path) -> None:
    row = rows_of(experiment(tmp_path, training={key: True}))[f"training.{key}"]
    assert row.fate is Fate.UNKNOWN
    assert f"did you mean {near}" in row.note


def test_wrong_values_all_at_once(tmp_path: Path) -> None:
    problems = experiment(tmp_path, training={"steps": "many", "seq_len": 1.5}, optimizer={"lr": "1e-4"}).problems
    assert {problem.where.rpartition(" ")[2] for problem in problems} == {"training.steps", "training.seq_len", "optimizer.lr"}


def test_the_devices_are_asked_for_where_the_batch_hangs_on_them(tmp_path: Path) -> None:
    (problem,) = experiment(tmp_path, devices=None).problems
    assert "add --devices" in problem.fix[0]


def test_the_tables_agree() -> None:
    assert not set(PRIMUS_KEYS) & set(FIELDS)
    assert set(TITAN_MODULE) <= {*FIELDS, *PRIMUS_KEYS}
