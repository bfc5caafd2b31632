"""Megatron's names in Primus' experiments: every key is told of, and the command means what the file's numbers say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_app.backends.amd_primus import convert, read_experiment
from primus_app.backends.amd_primus.megatron.architecture import DETERMINED, architecture
from primus_app.backends.amd_primus.megatron.convert import other_row
from primus_app.backends.amd_primus.megatron.fields import FIELDS, MODEL
from primus_app.backends.amd_primus.megatron.model import differences, published
from primus_app.backends.amd_primus.megatron.others import GROUPS, OTHERS
from primus_app.backends.amd_primus.megatron.settings import Settings
from primus_app.backends.amd_primus.presets import MEGATRON
from primus_app.backends.imported.converted import Converted
from primus_app.backends.imported.field import wrong_value
from primus_app.backends.imported.row import Fate, Row
from primus_app.cli.import_primus import refusals
from primus_app.config.compose import Request, hydra_ready
from primus_app.config.load import load_config
from primus_app.config.schema import Config, OptimizerConfig
from primus_app.plan.learning_rate import learning_rate
from primus_app.plan.plan import make_plan


def experiment(folder: Path, model: str = "llama2_7B", **overrides: Any) -> Converted:
    module = {"framework": "megatron", "config": "pre_trainer.yaml", "model": f"{model}.yaml", "overrides": overrides}
    keys = {"work_group": "team", "user_name": "ada", "exp_name": "first", "workspace": "out", "modules": {"pre_trainer": module}}
    file = folder / "exp.yaml"
    file.write_text(yaml.safe_dump(keys, sort_keys=False))
    return convert(read_experiment(str(file), {}))


def composed(converted: Converted) -> Config:
    assert converted.problems == ()
    with hydra_ready(None):
        return load_config(Request(converted.overrides), hardware="cpu")


def row_of(converted: Converted, key: str) -> Row:
    return next(row for row in converted.rows if row.key == key)


def test_the_numbers_of_a_file_are_those_of_the_command(tmp_path: Path) -> None:
    converted = experiment(
        tmp_path,
        train_iters=900,
        micro_batch_size=2,
        global_batch_size=64,
        seq_length=2048,
        seed=7,
        lr=4e-4,
        min_lr=4e-5,
        lr_warmup_iters=150,
        lr_decay_iters=800,
        lr_decay_style="linear",
        weight_decay=0.2,
        adam_beta1=0.8,
        adam_beta2=0.98,
        adam_eps=1e-9,
        clip_grad=0.5,
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=4,
        num_virtual_stages_per_pipeline_rank=2,
        sequence_parallel=False,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
        mock_data=True,
        eval_iters=3,
        eval_interval=50,
        save="anywhere",
        save_interval=200,
        async_save=True,
        log_interval=5,
        disable_tensorboard=False,
        stderr_sink_level="WARNING",
    )
    config = composed(converted)
    assert (config.work_group, config.user_name, config.exp_name, config.workspace) == ("team", "ada", "first", "out")
    assert (config.backend.name, config.model.name, config.precision.compute, config.data.source) == (
        "megatron",
        "llama2_7b",
        "bf16",
        "mock",
    )
    training = config.training
    assert (training.steps, training.micro_batch_size, training.global_batch_size, training.seq_len, training.seed) == (900, 2, 64, 2048, 7)
    assert (training.recompute, training.eval_steps, training.eval_every) == ("full", 3, 50)
    optimizer = config.optimizer
    assert (optimizer.lr, optimizer.min_lr, optimizer.warmup_steps, optimizer.schedule_steps) == (4e-4, 4e-5, 150, 800)
    assert (optimizer.schedule, optimizer.weight_decay, optimizer.clip_grad_norm) == ("linear", 0.2, 0.5)
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps) == (0.8, 0.98, 1e-9)
    parallel = config.parallel
    assert (parallel.tp, parallel.pp, parallel.vpp, parallel.schedule) == (2, 4, 2, "interleaved")
    assert (parallel.name, parallel.sequence_parallel, parallel.distributed_optimizer) == ("fsdp", False, "auto")
    # Primus keeps every checkpoint.
    assert (config.checkpoint.every, config.checkpoint.keep, config.checkpoint.async_) == (200, 0, True)
    assert (config.logging.every, config.logging.tensorboard, config.logging.level) == (5, True, "warning")
    assert make_plan(config, local_devices=8).problems == ()


def test_what_a_file_leaves_out_is_primus_default_and_not_ours(tmp_path: Path) -> None:
    """From primus/configs/modules/megatron/pre_trainer.yaml: rates and batch of its pre-training."""
    config = composed(experiment(tmp_path))
    assert (config.training.steps, config.training.global_batch_size, config.training.micro_batch_size) == (1000, 16, 2)
    assert (config.training.seq_len, config.training.eval_every, config.training.seed) == (1024, 0, 1234)
    assert (config.optimizer.lr, config.optimizer.min_lr, config.optimizer.warmup_steps) == (2e-5, 0.0, 40)
    assert (config.optimizer.beta2, config.optimizer.weight_decay, config.optimizer.schedule) == (0.999, 0.0, "cosine")
    # save: null saves nothing.
    assert (config.precision.name, config.checkpoint.every, config.logging.tensorboard) == ("bf16", 0, False)


AS_PUBLISHED = {
    *("llama2_7B", "llama2_13B", "llama2_70B", "llama3_8B", "llama3_70B", "mixtral_8x22B_v0.1"),
    *("deepseek_v2_lite", "deepseek_v2", "deepseek_v3", "qwen3_30B_A3B", "qwen3_235B_A22B"),
}
"""Presets that are the published architecture; max_position_embeddings is each experiment's own, init_std no matter of architecture."""

LIKE_LLAMA = {"family", "attention_qkv_bias", "rms_norm_eps", "tie_word_embeddings"}
NOT_PUBLISHED = {
    "llama3.1": {"rope_scaling"},
    "llama3.2": {"rope_scaling", "tie_word_embeddings"},
    "llama3.3": {"rope_scaling"},
    "qwen2.5": LIKE_LLAMA,
    "deepseek_r1_distill_qwen_1.5B": {*LIKE_LLAMA, "rope_theta"},
    "qwen3_4B": {"family", "qk_norm", "head_dim", "tie_word_embeddings"},
    "qwen3_8B": {"family", "qk_norm"},
    "qwen3_14B": {"family", "qk_norm"},
    "qwen3_32B": {"family", "qk_norm", "head_dim"},
    "qwen3_235B_A22B_4layer": {"num_hidden_layers"},
    "mixtral_8x7B_v0.1": set(),
    "gpt_oss": {
        *("family", "intermediate_size", "rope_theta", "rope_scaling", "rms_norm_eps", "attention_bias", "attention_sinks"),
        *("sliding_window", "sliding_window_alternate", "swiglu_limit", "qk_norm", "moe.num_shared_experts", "moe.norm_topk_prob"),
    },
}
"""What of Primus' presets is other than what was published: stretching, tying, biases and norms that it does not set."""


@pytest.mark.parametrize("name", [name for name, preset in MEGATRON.items() if preset.model])
def test_a_preset_is_the_model_here_but_for_what_is_named(name: str) -> None:
    model = MEGATRON[name].model
    assert model is not None
    words = {word for word, _, _ in differences(published(model), architecture(Settings({}, MEGATRON[name].settings)))}
    words -= {"max_position_embeddings", "init_std"}
    allowed = set() if name in AS_PUBLISHED else NOT_PUBLISHED[max((each for each in NOT_PUBLISHED if name.startswith(each)), key=len)]
    assert words <= allowed
    assert bool(words) == bool(allowed)


@pytest.mark.parametrize(
    "name",
    [
        *("llama2_70B", "llama3.2_1B", "qwen2.5_7B", "qwen3_32B", "qwen3_30B_A3B", "mixtral_8x22B_v0.1"),
        *("deepseek_v2_lite", "deepseek_v2", "deepseek_v3", "gpt_oss_20B", "moe_1T"),
    ],
)
def test_a_preset_of_each_kind_makes_a_command_that_is_accepted_or_says_why_not(name: str, tmp_path: Path) -> None:
    converted = experiment(tmp_path, name, mock_data=True, max_position_embeddings=4096, global_batch_size=64)
    refused = [*converted.problems, *(refusals(converted.overrides) if not converted.problems else ())]
    reasons = {"gpt_oss": "multi_latent_attention", "moe_": "multi_latent_attention", "deepseek_v2": "model.moe.topk_group"}
    expected = [reason for start, reason in reasons.items() if name.startswith(start) and name != "deepseek_v2_lite"]
    assert [problem.where.rpartition(" ")[2] for problem in refused] == expected


def test_a_size_of_the_file_is_told_at_its_own_key(tmp_path: Path) -> None:
    converted = experiment(tmp_path, "llama3.1_8B", num_layers=4, norm_epsilon=1e-6, num_query_groups=4)
    assert row_of(converted, "num_layers").became == ("model.num_hidden_layers=4",)
    assert row_of(converted, "norm_epsilon").became == ("model.rms_norm_eps=1e-06",)
    assert row_of(converted, "num_query_groups").became == ("model.num_key_value_heads=4",)
    preset = row_of(converted, "modules.pre_trainer.model")
    assert preset.became == ("model=llama3_1_8b", "model.rope_scaling=null")
    assert "the published model, which has rope_scaling" in preset.note


def test_megatrons_stretching_is_llama_3_1s(tmp_path: Path) -> None:
    config = composed(experiment(tmp_path, "llama3.1_8B", use_rope_scaling=True))
    scaling = published("llama3_1_8b")["rope_scaling"]
    assert config.model.rope_scaling is not None
    assert config.model.rope_scaling.model_dump() == scaling


def test_experts_and_their_layout(tmp_path: Path) -> None:
    converted = experiment(
        tmp_path,
        "deepseek_v3",
        num_layers=8,
        moe_layer_freq="([0]*2+[1]*6)",
        tensor_model_parallel_size=2,
        expert_model_parallel_size=4,
        expert_tensor_parallel_size=1,
        global_batch_size=64,
        max_position_embeddings=4096,
        mock_data=True,
    )
    config = composed(converted)
    assert config.model.moe is not None
    assert (config.model.moe.first_k_dense_replace, config.model.num_hidden_layers) == (2, 8)
    assert (config.parallel.ep, config.parallel.etp, config.training.load_balancing) == (4, 1, "expert_bias")
    assert row_of(converted, "moe_aux_loss_coeff").fate is Fate.DIFFERS
    assert refusals(converted.overrides) == []
    # Of two ways to balance the selection bias is kept, and without it the loss.
    assert composed(experiment(tmp_path, "deepseek_v2_lite")).training.load_balancing == "aux_loss"
    # Megatron's experts are divided as the rest where nothing is said.
    assert composed(experiment(tmp_path, "mixtral_8x7B_v0.1", tensor_model_parallel_size=2)).parallel.etp == 2


@pytest.mark.parametrize(
    ("overrides", "fate", "coefficient"),
    [
        ({"micro_batch_size": 1}, Fate.SAME, 1e-2),
        ({"micro_batch_size": 2}, Fate.DIFFERS, 1e-2),
        ({"micro_batch_size": 2, "moe_router_load_balancing_type": "seq_aux_loss", "moe_aux_loss_coeff": 1e-3}, Fate.SAME, 1e-3),
        ({"moe_router_load_balancing_type": ["global_aux_loss", "seq_aux_loss"], "moe_aux_loss_coeff": [0.1, 0.2]}, Fate.DIFFERS, 0.2),
    ],
)
def test_an_auxiliary_loss_is_one_of_sequences(tmp_path: Path, overrides: dict[str, Any], fate: Fate, coefficient: float) -> None:
    """A loss of the micro batch, Mixtral's, is one of the sequence where a micro batch is one sequence."""
    converted = experiment(tmp_path, "mixtral_8x7B_v0.1", **overrides)
    training = composed(converted).training
    assert (training.load_balancing, training.aux_loss_coefficient) == ("aux_loss", coefficient)
    assert row_of(converted, "moe_router_load_balancing_type").fate is fate


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"train_data_path": "/d/a"}, {"data.path=/d/a", "data.split=[100.0,0.0]"}),
        ({"train_data_path": ["/d/a", "/d/b"]}, {"data.path=[/d/a,/d/b]"}),
        ({"train_data_path": "0.3 /d/a 0.7 /d/b"}, {"data.path=[/d/a,/d/b]", "data.weights=[0.3,0.7]"}),
        ({"data_path": ["1", "/d/a"], "split": "90,10"}, {"data.path=/d/a", "data.split=[90.0,10.0]"}),
    ],
)
def test_corpora_of_megatron(overrides: dict[str, Any], expected: set[str], tmp_path: Path) -> None:
    converted = experiment(tmp_path, **overrides)
    assert {"data=indexed", *expected} <= set(converted.overrides)
    # That the files are not here is not the command's fault.
    assert refusals(converted.overrides) == []


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"reset_position_ids": True, "reset_attention_mask": True}, "training.document_mask=true"),
        ({"train_samples": 3200, "global_batch_size": 32, "lr_warmup_iters": 0}, "training.steps=100"),
        ({"lr_warmup_fraction": 0.1}, "optimizer.warmup_steps=100"),
        ({"lr_decay_style": "constant"}, "optimizer.schedule=constant"),
        ({"recompute_activations": True}, "training.recompute=selective"),
        ({"use_distributed_optimizer": False}, "parallel=dp"),
        ({"num_distributed_optimizer_instances": 2}, "parallel.dp_replicate=2"),
        ({"num_layers_per_virtual_pipeline_stage": 4, "pipeline_model_parallel_size": 4}, "parallel.vpp=2"),
        ({"layernorm_epsilon": 1e-6}, "model.rms_norm_eps=1e-06"),
        ({"deterministic_mode": True}, "training.deterministic=true"),
    ],
)
def test_settings_that_are_other_words_for_ours(overrides: dict[str, Any], expected: str, tmp_path: Path) -> None:
    converted = experiment(tmp_path, mock_data=True, **overrides)
    assert expected in converted.overrides
    assert refusals(converted.overrides) == []


@pytest.mark.parametrize(
    "overrides",
    [
        {"fp8": "hybrid"},
        {"fp16": True, "bf16": False},
        {"moe_router_force_load_balancing": True},
        {"optimizer": "sgd"},
        {"lr_decay_style": "inverse-square-root"},
        {"hidden_dropout": 0.1},
        {"eod_mask_loss": True},
        {"valid_data_path": "/d/v", "train_data_path": "/d/a"},
        {"train_data_path": "0.3 /x/a b 0.7"},
        {"data_path": "0.3 /x/a 0.7"},
        {"load": "/a/checkpoint"},
        {"use_torch_fsdp2": True},
        {
            "recompute_num_layers": 3,
            "recompute_granularity": "full",
            "recompute_method": "block",
            "pipeline_model_parallel_size": 2,
            "num_virtual_stages_per_pipeline_rank": 2,
        },
        {"pipeline_model_parallel_layout": "Et|t|tL"},
        {"patch_zero_bubble": True},
        {"mtp_num_layers": 1},
        {"profile": True},
        {"disable_wandb": False},
        {"lr_wsd_decay_style": "exponential", "lr_decay_style": "WSD"},
        {"reset_attention_mask": True},
        {"decoder_first_pipeline_num_layers": 3},
    ],
)
def test_what_is_not_carried_over_truly_is_said_to_differ(overrides: dict[str, Any], tmp_path: Path) -> None:
    row = row_of(experiment(tmp_path, **overrides), next(iter(overrides)))
    assert row.fate is Fate.DIFFERS
    assert row.note


def test_the_first_layers_of_a_stage_are_recomputed_as_there(tmp_path: Path) -> None:
    block = {"recompute_granularity": "full", "recompute_method": "block"}
    row = row_of(experiment(tmp_path, recompute_num_layers=3, **block), "recompute_num_layers")
    assert row.fate is Fate.SAME
    assert row.became == ("training.recompute_layers=3",)


@pytest.mark.parametrize(
    ("key", "near"),
    [("mock_date", "mock_data"), ("seq_len", "seq_length"), ("num_layer", "num_layers"), ("use_turbo_atention", "use_turbo_attention")],
)
def test_a_key_that_primus_passes_over_is_told_with_the_nearest(key: str, near: str, tmp_path: Path) -> None:
    row = row_of(experiment(tmp_path, **{key: True}), key)
    assert (row.fate, row.became) == (Fate.UNKNOWN, ())
    assert f"did you mean {near}" in row.note


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"normalization": "LayerNorm"}, "normalization"),
        ({"swiglu": False}, "swiglu"),
        ({"add_bias_linear": True}, "add_bias_linear"),
        ({"position_embedding_type": "learned_absolute"}, "position_embedding_type"),
    ],
)
def test_a_model_that_cannot_be_said_keeps_the_command_back(overrides: dict[str, Any], key: str, tmp_path: Path) -> None:
    (problem,) = experiment(tmp_path, **overrides).problems
    assert problem.where.endswith(f": {key}")


def test_experts_that_no_family_has_keep_the_command_back(tmp_path: Path) -> None:
    """Primus' own experiments for DeepSeek-V3 turn its attention off."""
    (problem,) = experiment(tmp_path, "deepseek_v3", multi_latent_attention=False, mtp_num_layers=None).problems
    assert "shared experts" in problem.what
    (problem,) = experiment(tmp_path, "mixtral_8x7B_v0.1", moe_layer_freq="([1]*4+[0]*28)").problems
    assert problem.where.endswith("moe_layer_freq")


def test_every_key_of_a_file_has_one_row_in_its_order(tmp_path: Path) -> None:
    values = {
        **{key: field.default for key, field in FIELDS.items()},
        **{key: other.neutral for key, other in OTHERS.items() if "." not in key},
    }
    converted = experiment(tmp_path, **(values | dict(MEGATRON["llama2_7B"].settings)))
    keys = [row.key for row in converted.rows if not row.is_default]
    assert [key for key in keys if key in values] == list(values)
    assert len(keys) == len(set(keys))
    assert not [row.key for row in converted.rows if row.fate is Fate.UNKNOWN]


def test_the_tables_agree_with_themselves() -> None:
    assert not [str(problem) for key, field in FIELDS.items() for problem in wrong_value(key, field, field.default)]
    assert not set(FIELDS) & set(OTHERS)
    names = [word.partition("=")[0] for _, _, keys in GROUPS for word in keys.split()]
    assert len(names) == len(set(names))
    assert {other_row(key, other.neutral).fate for key, other in OTHERS.items()} == {Fate.NO_MEANING}
    assert {key for keys in DETERMINED.values() for key in keys} <= set(MODEL)


@pytest.mark.slow
@pytest.mark.parametrize(("style", "schedule"), [("cosine", "cosine"), ("linear", "linear"), ("constant", "constant")])
def test_the_rates_are_megatrons_one_step_earlier(style: str, schedule: str, tmp_path: Path) -> None:
    """Against Megatron's own scheduler, which counts the steps that are done: its first step has the rate of step 0."""
    torch = pytest.importorskip("torch")
    scheduler = pytest.importorskip("megatron.core.optimizer_param_scheduler").OptimizerParamScheduler
    parameters = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = scheduler(parameters, 0.0, 1e-3, 1e-4, 10, 100, style, 0.0, 0.0, 100, "constant", use_checkpoint_opt_param_scheduler=False)
    file = {"lr": 1e-3, "min_lr": 1e-4, "lr_warmup_iters": 10, "train_iters": 100, "lr_decay_style": style}
    ours: OptimizerConfig = composed(experiment(tmp_path, mock_data=True, **file)).optimizer
    assert ours.schedule == schedule
    for step in range(1, 101):
        theirs.step(1)
        assert learning_rate(ours, step, 100) == pytest.approx(parameters.param_groups[0]["lr"], rel=1e-12)
