"""TorchTitan's job files: every key is told of, and the command means what the file's numbers say."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_app.backends.base import load_backend
from primus_app.backends.torchtitan.job_file import Fate, Job, convert, read_job
from primus_app.backends.torchtitan.job_file.fields import FIELDS, OLDER_NAMES, OLDER_SECTIONS, OLDER_SPECIAL
from primus_app.backends.torchtitan.job_file.flavors import DEEPSEEK, LLAMA3, LLAMA3_OLD, MASKED_ENDINGS, QWEN3
from primus_app.backends.torchtitan.job_file.read import current_name
from primus_app.backends.torchtitan.native import flatten
from primus_app.cli.imported import command_text
from primus_app.config.compose import Request
from primus_app.config.errors import UserError
from primus_app.config.load import load_config
from primus_app.config.schema import Config, OptimizerConfig
from primus_app.plan.learning_rate import learning_rate
from primus_app.plan.plan import make_plan

ROOT = Path(__file__).parents[3]

LLAMA_8B = """
[job]
dump_folder = "./my runs/out"
description = "a run"
[profiling]
enable_profiling = true
save_traces_folder = "traces"
profile_freq = 50
[metrics]
log_freq = 5
enable_tensorboard = true
[model]
name = "llama3"
flavor = "8B"
hf_assets_path = "./assets/hf/Llama-3.1-8B"
[optimizer]
name = "AdamW"
lr = 4e-4
beta2 = 0.98
eps = 1e-9
weight_decay = 0.2
[lr_scheduler]
warmup_steps = 150
decay_type = "cosine"
min_lr_factor = 0.25
[training]
local_batch_size = 2
seq_len = 4096
max_norm = 0.5
steps = 900
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
enable_async_tensor_parallel = true
fsdp_reshard_after_forward = "never"
[checkpoint]
enable = true
interval = 300
keep_latest_k = 4
async_mode = "async"
[activation_checkpoint]
mode = "full"
[compile]
enable = true
[comm]
init_timeout_seconds = 900
[validation]
enable = true
freq = 30
steps = 12
local_batch_size = 2
[debug]
seed = 42
deterministic = true
"""


def read(tmp_path: Path, text: str) -> Job:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return read_job(str(file))


def composed(job: Job, devices: int | None = None, *more: str) -> Config:
    """The command through a shell's eyes, composed, planned and shown to the engine, none of which has a word against it."""
    converted = convert(job, devices)
    assert converted.problems == ()
    words = shlex.split(command_text(converted).replace("\\\n", " "))
    assert tuple(words[-len(converted.overrides) :]) == converted.overrides
    config = load_config(Request((*converted.overrides, "hardware=mi300x", *more)), hardware="cpu")
    plan = make_plan(config, local_devices=1, local_hardware="cpu")
    # The file's corpus and tokenizer are not on this machine.
    assert [problem for problem in plan.problems if problem.where not in ("data.path", "data.tokenizer")] == []
    assert load_backend("torchtitan").check(config, plan.mesh) == []
    assert plan.mesh is not None
    assert devices is None or plan.mesh.world == devices
    return config


def test_the_numbers_of_a_file_are_those_of_the_command(tmp_path: Path) -> None:
    """Expected values are the file's own; the global batch is 2 samples on each of 32 / tp 4 = 8 data-parallel ranks."""
    config = composed(read(tmp_path, LLAMA_8B), 32)
    assert config.model.name == "llama3_1_8b"
    training, optimizer, parallel = config.training, config.optimizer, config.parallel
    assert (training.seq_len, training.steps, training.global_batch_size, training.micro_batch_size) == (4096, 900, 16, 2)
    assert (training.recompute, training.seed, training.deterministic) == ("full", 42, True)
    assert (training.eval_every, training.eval_steps) == (30, 12)
    assert (optimizer.lr, optimizer.beta1, optimizer.beta2, optimizer.eps, optimizer.weight_decay) == (4e-4, 0.9, 0.98, 1e-9, 0.2)
    assert (optimizer.warmup_steps, optimizer.schedule, optimizer.clip_grad_norm) == (150, "cosine", 0.5)
    assert optimizer.min_lr == pytest.approx(1e-4)
    assert (parallel.tp, parallel.dp_replicate, parallel.dp_shard) == (4, 2, "auto")
    assert (config.precision.compute, config.precision.params) == ("bf16", "fp32")
    assert (config.checkpoint.every, config.checkpoint.keep, config.checkpoint.async_) == (300, 4, True)
    assert (config.logging.every, config.logging.tensorboard, config.workspace) == (5, True, "./my runs/out")
    assert (config.cluster.nodes, config.cluster.devices_per_node) == (4, 8)
    assert flatten(config.backend.native) == {
        "profiler.enable_profiling": True,
        "profiler.save_traces_folder": "traces",
        "profiler.profile_freq": 50,
        "compile.enable": True,
        "compile.enable_async_tensor_parallel": True,
        "parallelism.fsdp_reshard_after_forward": "never",
        "comm.init_timeout_seconds": 900,
    }


def test_what_a_file_leaves_out_is_torchtitans_default_and_not_ours(tmp_path: Path) -> None:
    """The defaults of torchtitan 0.2.2's JobConfig."""
    config = composed(read(tmp_path, "[training]\nsteps = 10000\n"), 4)
    training, optimizer = config.training, config.optimizer
    assert (training.seq_len, training.global_batch_size, training.micro_batch_size, training.steps) == (2048, 32, 8, 10000)
    assert (training.recompute, training.eval_every) == ("selective", 0)
    assert (optimizer.lr, optimizer.warmup_steps, optimizer.schedule, optimizer.min_lr) == (8e-4, 200, "linear", 0.0)
    assert (config.precision.compute, config.checkpoint.every, config.logging.every) == ("bf16", 0, 10)
    assert config.logging.tensorboard is False
    assert (config.model.hidden_size, config.model.num_hidden_layers, config.model.vocab_size) == (256, 6, 2048)
    assert config.data.source == "stdlib_text"


def test_a_pipeline_with_experts(tmp_path: Path) -> None:
    text = """
    [model]
    name = "qwen3"
    flavor = "235B-A22B"
    [training]
    local_batch_size = 16
    global_batch_size = 4096
    steps = 100
    mixed_precision_param = "float32"
    dataset = "c4"
    [lr_scheduler]
    warmup_steps = 20
    [parallelism]
    pipeline_parallel_degree = 8
    pipeline_parallel_schedule = "Interleaved1F1B"
    pipeline_parallel_microbatch_size = 2
    pipeline_parallel_layers_per_stage = 6
    expert_parallel_degree = 8
    data_parallel_shard_degree = 16
    [checkpoint]
    enable = true
    """
    config = composed(read(tmp_path, text), 128)
    parallel = config.parallel
    # (94 layers + 1 + 1 for the ends) / 6 layers a stage = 16 stages = 2 on each of 8 ranks.
    assert (parallel.pp, parallel.vpp, parallel.schedule, parallel.ep, parallel.dp_shard) == (8, 2, "interleaved", 8, 16)
    assert (config.training.global_batch_size, config.training.micro_batch_size) == (4096, 2)
    assert config.precision.compute == "fp32"


def test_deepseeks_bias_is_moved_and_its_documents_are_masked(tmp_path: Path) -> None:
    job = read(tmp_path, '[model]\nname = "deepseek_v3"\nflavor = "671B"\n[training]\ndataset = "c4"\n')
    training = composed(job, 256).training
    assert (training.load_balancing, training.document_mask) == ("expert_bias", True)


OLD = """
[job]
use_for_integration_test = true
print_args = false
[model]
name = "llama3"
flavor = "70B"
norm_type = "rmsnorm"
tokenizer_path = "./tokenizer.model"
converters = "float8"
[optimizer]
name = "AdamW"
lr = 1.5e-4
[training]
batch_size = 4
seq_len = 2048
warmup_steps = 30
steps = 300
seed = 7
compile = true
data_parallel_shard_degree = 8
tensor_parallel_degree = 2
[experimental]
pipeline_parallel_degree = 2
[checkpoint]
enable_checkpoint = true
interval_type = "steps"
interval = 100
model_weights_only = false
[float8]
enable_float8_linear = true
[memory_estimation]
enabled = false
"""


def test_text_its_tokenizer_and_first_weights_are_carried_over(tmp_path: Path) -> None:
    text = """
[model]
name = "llama3"
flavor = "8B"
hf_assets_path = "assets/Llama 3"
[training]
steps = 1
dataset = "c4"
dataset_path = "/data/c4"
[checkpoint]
enable = true
initial_load_in_hf = true
"""
    found = convert(read(tmp_path, text), 8).overrides
    assert {"data=text", "data.path=/data/c4", "data.tokenizer='assets/Llama 3'", "checkpoint.load='assets/Llama 3'"} <= set(found)


def test_a_global_batch_that_the_ranks_cannot_divide(tmp_path: Path) -> None:
    text = "[training]\nsteps = 1\nglobal_batch_size = 8\nlocal_batch_size = 3\n"
    (problem,) = convert(read(tmp_path, text), 2).problems
    assert str(problem).startswith("training.global_batch_size: 8 is not divisible by local_batch_size 3 x 2 data-parallel ranks = 6")
    assert "global_batch_size=6 or global_batch_size=12" in str(problem)
    assert convert(read(tmp_path, text.replace("= 3", "= 2")), 2).problems == ()


def test_the_keys_of_the_first_releases(tmp_path: Path) -> None:
    config = composed(read(tmp_path, OLD))
    assert config.model.name == "llama3_70b"
    assert config.model.rope_scaling is None
    assert (config.optimizer.warmup_steps, config.training.seed, config.checkpoint.every) == (30, 7, 100)
    assert (config.parallel.dp_shard, config.parallel.tp, config.parallel.pp) == (8, 2, 2)
    assert config.training.global_batch_size == 4 * 8
    assert flatten(config.backend.native) == {"compile.enable": True}


@pytest.mark.parametrize("text", [LLAMA_8B, OLD], ids=["0.2", "first"])
def test_every_key_of_a_file_has_a_row_in_its_order_and_words(text: str, tmp_path: Path) -> None:
    job = read(tmp_path, text)
    rows = convert(job, 32).rows
    assert [row.key for row in rows if not row.is_default] == list(job.written)
    assert all(row.became or row.fate is Fate.DIFFERS for row in rows if row.is_default)
    assert all(row.note or row.became or row.fate is Fate.SAME for row in rows)


def sample(kind: Any, default: Any) -> Any:
    return "x" if default is None and kind is str else 1 if default is None and kind is int else default


@pytest.mark.parametrize(
    "key", sorted({*FIELDS, *OLDER_NAMES, *OLDER_SPECIAL, *(f"{older}.fqns" for older in OLDER_SECTIONS if "moe" in older)})
)
def test_every_key_is_told_of(key: str) -> None:
    name = current_name(key)
    name = f"{name}" if name in FIELDS or name in OLDER_SPECIAL else current_name(key.replace(".fqns", ".float8.fqns"))
    field = FIELDS.get(name)
    job = Job({key: sample(field.type, field.default) if field else False}, {key: name})
    (row,) = (row for row in convert(job, 8).rows if not row.is_default)
    assert row.key == key


def test_older_names_lead_to_names_of_today() -> None:
    assert set(OLDER_NAMES.values()) <= set(FIELDS)
    assert not set(OLDER_NAMES) & set(FIELDS)
    assert current_name("float8.filter_fqns") == "quantize.linear.float8.filter_fqns"
    assert current_name("quantize.moe.mx.fqns") == "quantize.grouped_mm.mx.fqns"


FLAVORS = {
    **{("llama3", flavor): each for flavor, each in LLAMA3.items()},
    **{("qwen3", flavor): each for flavor, each in QWEN3.items()},
    **{("deepseek_v3", flavor): each for flavor, each in DEEPSEEK.items()},
}


@pytest.mark.parametrize(("name", "flavor"), FLAVORS)
def test_every_flavor_passes_the_checks_and_has_the_layers_that_it_says(name: str, flavor: str, tmp_path: Path) -> None:
    job = read(tmp_path, f'[model]\nname = "{name}"\nflavor = "{flavor}"\n[training]\ndataset = "c4"\n')
    assert composed(job, 8).model.num_hidden_layers == FLAVORS[name, flavor].layers


@pytest.mark.slow
def test_the_debug_models_are_torchtitans_own() -> None:
    """Numbers of weights against the debug models of the installed torchtitan, built on no device."""
    import torch
    from torchtitan.models import llama3, qwen3

    from primus_app.plan.parameters import count_parameters

    for registry, flavor, ours in ((llama3, "debugmodel", LLAMA3), (qwen3, "debugmodel", QWEN3), (qwen3, "debugmodel_moe", QWEN3)):
        with torch.device("meta"):
            module = registry.model_registry(flavor).model.build()
        config = load_config(Request(ours[flavor].overrides), hardware="cpu")
        assert count_parameters(config.model).total == sum(weight.numel() for weight in module.parameters())


def test_releases_before_0_2_did_not_stretch_positions() -> None:
    assert set(LLAMA3) == set(LLAMA3_OLD)
    for flavor in ("8B", "70B", "debugmodel"):
        old, new = (load_config(Request(each[flavor].overrides), hardware="cpu").model for each in (LLAMA3_OLD, LLAMA3))
        assert old.rope_scaling is None
        assert new.rope_scaling is not None
        assert (old.hidden_size, old.num_hidden_layers) == (new.hidden_size, new.num_hidden_layers)


@pytest.mark.parametrize("ending", MASKED_ENDINGS)
def test_flavors_that_mask_documents(ending: str, tmp_path: Path) -> None:
    job = read(tmp_path, f'[model]\nname = "llama3"\nflavor = "8B{ending}"\n')
    assert composed(job, 8).training.document_mask


@pytest.mark.parametrize(("decay", "extra"), [("linear", ""), ("cosine", ""), ("linear", "decay_ratio = 0.9\n")])
def test_the_rates_are_torchtitans_with_the_fall_one_step_earlier(decay: str, extra: str, tmp_path: Path) -> None:
    """Ours of step k > warm-up is the installed torchtitan's of step k + 1; in the warm-up they are the same."""
    import torch
    from torchtitan.components.optimizer import LRSchedulersContainer

    from primus_app.backends.torchtitan.optimizer import optimizer_config

    text = f'[lr_scheduler]\nwarmup_steps = 5\ndecay_type = "{decay}"\nmin_lr_factor = 0.1\n{extra}[training]\nsteps = 40\n'
    config = composed(read(tmp_path, text), 1)
    container = optimizer_config(OptimizerConfig(lr=8e-4)).build(model_parts=[torch.nn.Linear(2, 2)])
    schedule = LRSchedulersContainer.Config(warmup_steps=5, decay_type=decay, min_lr_factor=0.1, decay_ratio=0.9 if extra else None)
    schedules = schedule.build(optimizers=container, training_steps=40)
    theirs = []
    for _ in range(40):
        theirs.append(next(iter(container)).param_groups[0]["lr"])
        container.step()
        schedules.step()
    ours = [learning_rate(config.optimizer, step, 40) for step in range(1, 41)]
    assert ours[:5] == pytest.approx(theirs[:5])
    assert ours[5:39] == pytest.approx(theirs[6:40])


@pytest.mark.parametrize(
    ("decay", "ratio", "schedule", "same"),
    [("linear", 0.2, "wsd", True), ("linear", 0.5, "wsd", False), ("cosine", 0.5, "wsd", False), ("sqrt", 1.0, "linear", False)],
)
def test_a_schedule_without_counterpart_is_said_to_differ(decay: str, ratio: float, schedule: str, same: bool, tmp_path: Path) -> None:
    text = f'[lr_scheduler]\nwarmup_steps = 0\ndecay_type = "{decay}"\ndecay_ratio = {ratio}\n[training]\nsteps = 100\n'
    job = read(tmp_path, text)
    assert composed(job, 1).optimizer.schedule == schedule
    fates = {row.key: row.fate for row in convert(job, 1).rows if row.key.startswith("lr_scheduler.decay")}
    assert (Fate.DIFFERS not in fates.values()) is same


DIFFERS: list[tuple[str, str]] = [
    ('[optimizer]\nname = "Adam"\n', "optimizer.name"),
    ("[optimizer]\nweight_decay = 0.1\n", "optimizer.weight_decay"),
    ('[model]\nconverters = ["quantize.linear.float8"]\n', "model.converters"),
    ('[training]\ndtype = "bfloat16"\n', "training.dtype"),
    ('[checkpoint]\ninitial_load_path = "dcp/step-9"\n', "checkpoint.initial_load_path"),
    ('[checkpoint]\nenable = true\nasync_mode = "async_with_pinned_mem"\n', "checkpoint.async_mode"),
    ("[checkpoint]\ninitial_load_in_hf = true\n", "checkpoint.initial_load_in_hf"),
    ("[metrics]\nenable_wandb = true\n", "metrics.enable_wandb"),
    ("[debug]\nmoe_force_load_balance = true\n", "debug.moe_force_load_balance"),
    ("[fault_tolerance]\nenable = true\n", "fault_tolerance.enable"),
    ('[experimental]\ncustom_import = "mine"\n', "experimental.custom_import"),
    ("[validation]\nenable = true\n", "validation.steps"),
    ('[activation_checkpoint]\nselective_ac_option = "2"\n', "activation_checkpoint.selective_ac_option"),
    (
        '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "ZBVZeroBubble"\n',
        "parallelism.pipeline_parallel_schedule",
    ),
]


@pytest.mark.parametrize(("text", "key"), DIFFERS, ids=[key for _, key in DIFFERS])
def test_what_is_not_carried_over_truly_is_said_to_differ(text: str, key: str, tmp_path: Path) -> None:
    if not text.startswith(("[training]", "[optimizer]", "[parallelism]")):
        text += "[training]\nsteps = 1\n" if key != "validation.steps" else "steps = -1\n[training]\nsteps = 1\n"
    (row,) = (row for row in convert(read(tmp_path, text), 8).rows if row.key == key)
    assert row.fate is Fate.DIFFERS
    assert row.note


def test_zero_bubble_in_a_v_and_a_memory_budget_pass_the_checks(tmp_path: Path) -> None:
    text = """
    [training]
    global_batch_size = 64
    local_batch_size = 16
    [parallelism]
    pipeline_parallel_degree = 2
    pipeline_parallel_schedule = "ZBVZeroBubble"
    [activation_checkpoint]
    mode = "memory_budget"
    memory_budget = 0.4
    [compile]
    enable = true
    """
    config = composed(read(tmp_path, text), 4)
    assert (config.parallel.schedule, config.parallel.vpp, config.training.recompute) == ("zero_bubble", 1, "none")
    assert flatten(config.backend.native)["activation_checkpoint.memory_budget"] == 0.4


def test_a_batch_that_hangs_on_the_devices_asks_for_them(tmp_path: Path) -> None:
    job = read(tmp_path, "[training]\nlocal_batch_size = 4\n[parallelism]\ntensor_parallel_degree = 2\n")
    (problem,) = convert(job).problems
    assert problem.where == "training.global_batch_size"
    assert "local_batch_size 4 x data-parallel ranks = 4 x devices / (tp 2)" in problem.what
    assert "--devices" in problem.fix[0]
    assert composed(job, 6).training.global_batch_size == 4 * 3


@pytest.mark.parametrize(
    ("shard", "devices", "what", "fix"),
    [(-1, 6, "6 is not divisible by tp 4", "--devices 8"), (2, 16, "16 is not tp 4 x pp 1 x cp 1 x dp_replicate 1 x dp_shard 2 = 8", "")],
)
def test_devices_that_do_not_hold_the_degrees(shard: int, devices: int, what: str, fix: str, tmp_path: Path) -> None:
    job = read(tmp_path, f"[parallelism]\ntensor_parallel_degree = 4\ndata_parallel_shard_degree = {shard}\n")
    (problem,) = convert(job, devices).problems
    assert problem.where == "--devices"
    assert what in problem.what
    assert fix in problem.fix[0]


@pytest.mark.parametrize(
    ("model", "what", "fix"),
    [
        ('name = "llama4"\nflavor = "17bx16e"', "'llama4' has no counterpart here", "model=hf model.path="),
        ('name = "flux"', "'flux' has no counterpart here", "model=hf"),
        ('name = "llama3"\nflavor = "9B"', "llama3 has no flavor '9B' known here", "8B?"),
        ('name = "qwen3"\nflavor = "custom"', "no flavor 'custom'", ""),
        ('name = "deepseek_v3"\nflavor = "236B"', "ranks groups of experts by their two best ones", "model=deepseek_v2"),
    ],
)
def test_a_model_without_counterpart_keeps_the_command_back(model: str, what: str, fix: str, tmp_path: Path) -> None:
    (problem,) = convert(read(tmp_path, f"[model]\n{model}\n"), 8).problems
    assert what in problem.what
    assert fix in " ".join(problem.fix)


MISTAKES: list[tuple[str, list[tuple[str, str, str]]]] = [
    ("[training\n", [("job.toml", "is not valid TOML", "")]),
    ("", [("job.toml", "is no job file of TorchTitan", "TOML up to torchtitan 0.2")]),
    ("[tool.ruff]\nline-length = 80\n", [("job.toml", "is no job file of TorchTitan", "")]),
    ("[training]\nstpes = 5\nsteps = 5\n", [("training.stpes", "no such key", "did you mean training.steps")]),
    ("[training]\nsteps = 5\n[checkpont]\ninterval = 5\n", [("checkpont.interval", "no such key", "did you mean checkpoint.interval?")]),
    ("[training]\nsteps = 5\nzzz = 5\n", [("training.zzz", "no such key", "leave it out")]),
    ('[training]\nsteps = "many"\n', [("training.steps", "'many' is not allowed; it takes a whole number", "")]),
    ("[training]\nsteps = true\n", [("training.steps", "true is not allowed", "")]),
    (
        "[parallelism]\ntensor_parallel_degree = 0\n",
        [("parallelism.tensor_parallel_degree", "0 is not allowed; it takes a whole number above 0", "")],
    ),
    ('[lr_scheduler]\ndecay_type = "cosin"\n[training]\nsteps = 1\n', [("lr_scheduler.decay_type", "one of linear, sqrt", "cosine?")]),
    (
        "[training]\nbatch_size = 1\nlocal_batch_size = 2\n",
        [("training.local_batch_size", "older name of training.batch_size", "one of them")],
    ),
    (
        '[training]\nsteps = "a"\nstpes = 1\n[optimizer]\nlr = "b"\n',
        [("training.stpes", "", ""), ("training.steps", "", ""), ("optimizer.lr", "", "")],
    ),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_in_a_file_all_at_once(text: str, expected: list[tuple[str, str, str]], tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert len(caught.value.problems) == len(expected)
    for problem, (where, what, fix) in zip(caught.value.problems, expected, strict=True):
        assert where in problem.where
        assert what in problem.what
        assert fix in " ".join(problem.fix)


def test_keys_of_the_users_own_extension_are_told_of_and_no_mistake(tmp_path: Path) -> None:
    job = read(tmp_path, '[job]\ncustom_config_module = "my.config"\n[training]\nsteps = 5\n[mine]\nspeed = 3\n')
    (row,) = (row for row in convert(job, 1).rows if row.key == "mine.speed")
    assert row.fate is Fate.DIFFERS
    assert "my.config" in row.note


def test_reading_imports_no_torch_and_no_hydra(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(LLAMA_8B)
    code = (
        "import sys; from primus_app.__main__ import main; "
        f"assert main(['import-titan', {str(file)!r}, '--devices', '8']) == 0; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'torchtitan', 'hydra')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
