"""backend.native under backend.runner=pretrain: arguments of Megatron-LM, held against what its parsers take."""

import json
from functools import cache
from typing import Any

import pytest
import yaml

from primus_app.backends.base import load_backend
from primus_app.backends.megatron.native.options import OPTIONS
from primus_app.backends.megatron.pretrain.native import TRAINER, arguments_of
from primus_app.backends.megatron.pretrain.recorded_arguments import misfits, recorded, recorded_versions
from primus_app.backends.megatron.pretrain.row import Source
from primus_app.backends.megatron.pretrain.table import arguments, said_names
from primus_app.backends.megatron.translate import data_parallel_settings
from primus_app.config.compose import Request
from primus_app.config.errors import Problem
from primus_app.config.load import load_config
from primus_app.config.schema import Config
from primus_app.plan.plan import Plan, make_plan

PRETRAIN = ("backend=megatron", "backend.runner=pretrain")
GPU = "hardware=mi300x"
TWO = "cluster.devices_per_node=2"
FSDP = ("parallel=fsdp", TWO)


def planned(*overrides: str) -> tuple[Config, Plan]:
    config = load_config(Request((*PRETRAIN, *overrides)), hardware="cpu")
    plan = make_plan(config, local_devices=8 if GPU in overrides else 1)
    assert plan.problems == (), plan.problems
    return config, plan


@cache
def _base(settings: tuple[str, ...]) -> tuple[Config, Plan]:
    return planned(*settings)


def refused(settings: tuple[str, ...], option: str) -> list[Problem]:
    """As refusals, without composing anew for one more argument."""
    config, plan = _base(settings)
    name, _, value = option.partition("=")
    other = config.model_copy(update={"backend": config.backend.model_copy(update={"native": {name: yaml.safe_load(value)}})})
    return load_backend("megatron").check(other, plan.mesh)


def refusals(*overrides: str) -> list[Problem]:
    config, plan = planned(*overrides)
    return load_backend("megatron").check(config, plan.mesh)


def told(*overrides: str) -> dict[str, list[str]]:
    assert refusals(*overrides) == []
    config, plan = planned(*overrides)
    cpu = GPU not in overrides
    found = arguments(Source.of(config, plan, cpu=cpu, engine=not cpu, hosted=True))
    assert len({name for name, _ in found}) == len(found), "an argument is there twice"
    assert list(misfits(found, recorded("0.17.0"))) == []
    return dict(found)


def test_what_is_given_is_added() -> None:
    found = told(GPU, *FSDP, "backend.native.manual_gc=true", "backend.native.manual_gc_interval=5", "backend.native.ddp_bucket_size=1000")
    assert (found["--manual-gc"], found["--manual-gc-interval"], found["--ddp-bucket-size"]) == ([], ["5"], ["1000"])


def test_what_this_program_gives_is_given_once_and_may_be_taken_out() -> None:
    assert {"--overlap-grad-reduce", "--overlap-param-gather", "--no-align-param-gather"} <= set(told(GPU, *FSDP))
    without = told(GPU, *FSDP, "backend.native.overlap_grad_reduce=false")
    assert not {"--overlap-grad-reduce", "--overlap-param-gather"} & set(without)
    assert "--overlap-grad-reduce" not in told(*FSDP)
    both = told(*FSDP, "backend.native.overlap_grad_reduce=true", "backend.native.overlap_param_gather=true")
    assert {"--overlap-grad-reduce", "--overlap-param-gather"} <= set(both)


def test_a_field_that_an_argument_sets_is_set_in_our_model_too() -> None:
    """The model is built of our settings, and held against what Megatron-LM makes of the arguments."""
    config, plan = planned(GPU, *FSDP, "backend.native.no_gradient_accumulation_fusion=false", "backend.native.use_nccl_ub=true")
    source = Source.of(config, plan, cpu=False, engine=True, hosted=True)
    assert source.settings["gradient_accumulation_fusion"] is True
    assert "--no-gradient-accumulation-fusion" not in dict(arguments(source))
    assert plan.mesh is not None
    assert data_parallel_settings(config, plan.mesh, cpu=False)["nccl_ub"] is True


WRONG: list[tuple[tuple[str, ...], str, str, str]] = [
    (FSDP, "overlap_grad_redcue=true", "has no such option", "did you mean backend.native.overlap_grad_reduce?"),
    ((), "num_layers=3", "is set by our own model.num_hidden_layers", "write model.num_hidden_layers=3"),
    ((), "train_iters=3", "is set by our own training.steps", ""),
    ((), "fp16=true", "is set by our own precision", "set precision"),
    ((), "swiglu=true", "is said by this program", "leave it out"),
    ((), "save=x", "is not among the arguments that are known", "leave it out"),
    ((), "moe_z_loss_coeff=0.1", "the loss curve", "leave it out"),
    ((), "manual_gc_interval=often", "'often' is not allowed; it takes a whole number", ""),
    ((), "manual_gc_interval=3", "without manual_gc", "backend.native.manual_gc=true"),
    ((), "manual_gc=false", "left out anyway", "leave it out"),
    ((GPU,), "empty_unused_memory_level=3", "it takes one of 0, 1, 2", ""),
    ((), "tp_comm_overlap=true", "has no use on a CPU", "leave it out"),
    ((), "overlap_grad_reduce=true", "one data parallel rank", "leave it out"),
    (FSDP, "overlap_param_gather=true", "without overlap_grad_reduce", ""),
]


@pytest.mark.parametrize(("settings", "option", "what", "fix"), WRONG, ids=[option for _, option, _, _ in WRONG])
def test_a_wrong_argument_is_refused_by_name(settings: tuple[str, ...], option: str, what: str, fix: str) -> None:
    (problem,) = refused(settings, option)
    assert problem.where == f"backend.native.{option.partition('=')[0]}"
    assert what in problem.what
    assert fix in " ".join(problem.fix)


@pytest.mark.parametrize("version", recorded_versions())
def test_what_is_passed_through_is_an_argument_of(version: str) -> None:
    options = arguments_of(version, tuple(sorted(said_names().items())))
    assert set(TRAINER) <= set(options.passed)
    every: set[Any] = {*options.passed, *options.owned, *options.refused}
    assert every == {name.removeprefix("--").replace("-", "_") for name in recorded(version)}
    assert all(json.dumps(option.help) for option in options.passed.values())


def test_most_fields_of_the_core_runner_have_an_argument() -> None:
    """Those without have no argument in 0.17 at all."""
    options = arguments_of("0.17.0", ())
    known = {options.known_as(name, None)[0] for name in options.passed}
    assert set(OPTIONS) - known == {
        "ddp.check_for_nan_in_grad",
        "transformer.batch_p2p_sync",
        "transformer.bias_activation_fusion",
        "transformer.cpu_offloading",
        "transformer.cpu_offloading_activations",
        "transformer.cpu_offloading_double_buffering",
        "transformer.cpu_offloading_weights",
        "transformer.deallocate_pipeline_outputs",
        "transformer.fused_single_qkv_rope",
    }
