"""No setting is silently ignored: each changes what TorchTitan receives, or is refused by name, or is carried out elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from primus_app.backends.base import RankContext, load_backend
from primus_app.config.compose import Request
from primus_app.config.errors import UserError
from primus_app.config.kinds import schema_leaves
from primus_app.config.load import load_config
from primus_app.data.prepared import PreparedData, SplitData
from primus_app.plan.plan import make_plan
from primus_app.run.directory import RunDirectory

DATA = PreparedData("mock", SplitData(), SplitData(), "0", None, 256, None)

REACHES = (
    "training.steps=7",
    "training.tokens=4096 training.steps=null",
    "training.seq_len=64",
    "training.global_batch_size=32",
    "training.micro_batch_size=2",
    "training.seed=7",
    "training.recompute=full",
    "training.recompute=selective",
    "training.recompute=full training.recompute_layers=2",
    "training.eval_every=7",
    "training.eval_every=0",
    "training.eval_steps=7",
    "training.document_mask=true",
    "training.deterministic=true",
    "optimizer.lr=1e-4",
    "optimizer.min_lr=1e-5",
    "optimizer.warmup_steps=7",
    "optimizer.schedule=linear",
    "optimizer.schedule=constant",
    "optimizer.schedule=wsd",
    "optimizer.schedule_steps=70",
    "optimizer.weight_decay=0.7",
    "optimizer.beta1=0.7",
    "optimizer.beta2=0.7",
    "optimizer.eps=1e-7",
    "optimizer.clip_grad_norm=0.7",
    "optimizer.clip_grad_norm=0",
    "precision=bf16",
    "parallel=dp cluster.devices_per_node=2",
    "parallel=fsdp cluster.devices_per_node=2",
    "parallel=fsdp parallel.dp_replicate=2 cluster.devices_per_node=4",
    "parallel=tp2 cluster.devices_per_node=2",
    "parallel=tp2 cluster.devices_per_node=2 parallel.sequence_parallel=false",
    "parallel=pp2 cluster.devices_per_node=2",
    "parallel=pp2 cluster.devices_per_node=2 parallel.schedule=gpipe",
    "parallel=pp2 cluster.devices_per_node=2 parallel.schedule=zero_bubble",
    "parallel=pp2 cluster.devices_per_node=2 parallel.schedule=interleaved parallel.vpp=2",
    "parallel=cp2 cluster.devices_per_node=2 training.seq_len=256",
    "parallel=ep2 cluster.devices_per_node=2 model=qwen3_moe_tiny",
    "parallel=tp2 cluster.devices_per_node=2 model=qwen3_moe_tiny parallel.etp=2",
    "checkpoint.every=7",
    "checkpoint.every=0",
    "checkpoint.keep=7",
    "checkpoint.async=true",
    "logging.every=7",
    "model.rope_theta=500000",
    "model.rms_norm_eps=1e-6",
    "model.tie_word_embeddings=true",
    "model.num_hidden_layers=2",
    "model.intermediate_size=128",
    "model=qwen3_moe_tiny",
    "model=deepseek_v3_tiny",
    "training.load_balancing=aux_loss model=qwen3_moe_tiny",
    "training.load_balancing=aux_loss training.aux_loss_coefficient=0.1 model=qwen3_moe_tiny",
    "hardware.peak_tflops.fp32=1",
)

REFUSED = (
    "training.seq_len=128 parallel=cp2 cluster.devices_per_node=2",
    "parallel=tp2 cluster.devices_per_node=2 model=qwen3_moe_tiny",
    "parallel=tp2 cluster.devices_per_node=2 parallel.etp=2",
    "parallel=ep2 parallel.dp_replicate=2 parallel.dp_shard=1 cluster.devices_per_node=2 model=qwen3_moe_tiny",
    "model.tie_word_embeddings=true parallel=pp2 cluster.devices_per_node=2",
    "parallel.distributed_optimizer=true",
    "backend.runner=pretrain",
    "backend.megatron_path=/nowhere",
    "training.load_balancing=expert_bias",
    "training.aux_loss_coefficient=0.1 model=qwen3_moe_tiny",
    "training.recompute_layers=2",
    "training.recompute=full training.recompute_layers=5",
    "backend.native.training.seq_len=7",
    "backend.patches=[nonsense]",
    "model.sliding_window=64",
    "model.attention_bias=true",
    "model.attention_sinks=true",
    "model.init=native model.init_std=0.5",
    "parallel.sequence_parallel=false",
    "parallel.schedule=gpipe",
    "parallel.vpp=2",
    "parallel.etp=2",
    "checkpoint.keep=1",
    "data.path=/nowhere",
    "data=text data.path=/nowhere",
    "data=text data.path=/ data.tokenizer=/nowhere",
    "data.tokenizer=/nowhere",
    "data.text_key=content",
    "data.end_of_document=x",
    "data.weights=[1,2]",
    "data.prompt_key=question",
    "data.response_key=answer",
    "data.messages_key=chat",
    "data.chat_template=plain",
    "data.packing=false",
    "data.too_long=drop",
    "training.stage=post",
    "data=instructions data.path=/",
    "data=text data.path=/ data.weights=[1]",
    "model=mixtral_8x7b",
)

ELSEWHERE = {
    "work_group": "run/directory.py",
    "user_name": "run/directory.py",
    "exp_name": "run/directory.py",
    "workspace": "run/directory.py",
    "logging.level": "run/rank_logs.py",
    "logging.tensorboard": "backends/recorder.py",
    "model.init": "backends/torchtitan/trainer.py",
    "model.init_std": "backends/hf_names.py",
    "data.cache_dir": "data/cache.py",
    "data.split": "data/prepare.py",
    "data.path": "plan/data_files.py",
    "data.weights": "data/prepare.py",
    "data.text_key": "data/text/source.py",
    "data.tokenizer": "data/text/source.py",
    "data.end_of_document": "data/text/source.py",
    "data.prompt_key": "data/instructions/source.py",
    "data.response_key": "data/instructions/source.py",
    "data.messages_key": "data/instructions/source.py",
    "data.chat_template": "data/instructions/find_template.py",
    "data.packing": "data/instructions/source.py",
    "data.too_long": "data/instructions/source.py",
    "training.stage": "launch/rank.py",
    "checkpoint.load": "backends/initial_weights.py",
    "checkpoint.load_digest": "backends/initial_weights.py",
    "cluster.nodes": "plan/mesh.py",
    "cluster.devices_per_node": "launch/agent.py",
}
"""Settings that are no business of the engine, and the file that carries them out."""


def problems(overrides: str) -> list[str]:
    try:
        config = load_config(Request(tuple(overrides.split())), hardware="cpu")
    except UserError as error:
        return [problem.where for problem in error.problems]
    plan = make_plan(config, local_devices=1, local_hardware="cpu")
    return [problem.where for problem in (*plan.problems, *load_backend("torchtitan").check(config, plan.mesh))]


def native(overrides: str, tmp_path: Path) -> str:
    from primus_app.backends.torchtitan.translate import native_record, translate

    config = load_config(Request(tuple(overrides.split())), hardware="cpu")
    plan = make_plan(config, local_devices=1, local_hardware="cpu")
    assert plan.mesh is not None
    assert plan.batch is not None
    context = RankContext(config, RunDirectory(tmp_path), 0, DATA, rank=0, local_rank=0, world_size=1)
    record: dict[str, Any] = native_record(translate(context, plan.mesh, plan.batch, plan.stages, cpu=True))
    return json.dumps(record, default=str, sort_keys=True)


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    place = tmp_path_factory.mktemp("run")
    return native("", place), place


@pytest.mark.slow
@pytest.mark.parametrize("overrides", REACHES)
def test_a_setting_reaches_torchtitan(default: tuple[str, Path], overrides: str) -> None:
    assert problems(overrides) == []
    assert native(overrides, default[1]) != default[0]


@pytest.mark.parametrize("overrides", REFUSED)
def test_a_setting_is_refused_by_name(overrides: str) -> None:
    found = problems(overrides)
    section = overrides.split("=")[0].split(".")[0]
    assert any(where.startswith(section) for where in found), found


def test_every_key_of_the_schema_is_looked_at() -> None:
    """The architecture is left out: its tests hold TorchTitan's logits against another implementation."""
    typed = {word.split("=")[0] for overrides in (*REACHES, *REFUSED) for word in overrides.split()}
    chosen = {word for word in typed if "." not in word}
    looked_at = {*typed, *ELSEWHERE, *(f"{group}.name" for group in (*chosen, "backend", "cluster", "optimizer"))}
    left = [
        key for key in schema_leaves() if key not in looked_at and not key.startswith(("model.", "hardware.", "plan.", "backend.native"))
    ]
    only_one_value = {"precision.params", "precision.grads", "precision.optimizer_states"}
    by_group = {"data.source", "precision.compute", "parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep", "parallel.dp_shard"}
    assert set(left) - only_one_value - by_group == set()


def test_the_settings_of_other_files_are_named_rightly() -> None:
    root = Path(__file__).parents[3] / "primus_app"
    for key, file in ELSEWHERE.items():
        assert key.rpartition(".")[2] in (root / file).read_text(), (key, file)
