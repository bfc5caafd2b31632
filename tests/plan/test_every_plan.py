"""Every model with every layout of conf/ on both engines: the plan is a complete answer, or says why there is none."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from primus_app.backends.base import load_backend
from primus_app.config.compose import Request
from primus_app.config.errors import Problem
from primus_app.config.load import load_config
from primus_app.config.location import conf_dir
from primus_app.config.schema import Config, ModelConfig, ParallelConfig
from primus_app.plan.estimate.memory import estimate_memory
from primus_app.plan.estimate.numbers import memory_dict, time_dict
from primus_app.plan.estimate.time import estimate_time, time_unknown
from primus_app.plan.plan import Plan, make_plan

ENGINES = ("torchtitan", "megatron")
TRAINING = ("training.seq_len=2048", "training.global_batch_size=64", "training.micro_batch_size=1", "precision=bf16")


def options(group: str) -> dict[str, dict[str, Any]]:
    """What each file of a group says; hf stands for a model of the user's own."""
    files = sorted((conf_dir() / group).glob("*.yaml"))
    return {file.stem: yaml.safe_load(file.read_text()) or {} for file in files if file.stem != "hf"}


MODELS = {name: ModelConfig(**values) for name, values in options("model").items()}
LAYOUTS = {name: ParallelConfig(**values) for name, values in options("parallel").items()}


def configs(engine: str, hardware: str) -> Iterator[tuple[str, Config]]:
    base = load_config(Request((*TRAINING, f"backend={engine}", f"hardware={hardware}")), hardware=hardware)
    for name, model in MODELS.items():
        for layout, parallel in LAYOUTS.items():
            yield f"{name} {layout}", base.model_copy(update={"model": model, "parallel": parallel})


def require_told(case: str, problems: list[Problem]) -> None:
    for problem in problems:
        assert problem.where, case
        assert problem.what, case


def require_complete(case: str, config: Config, plan: Plan) -> None:
    """All parts are there, all numbers are finite, and the stages hold the whole model."""
    assert plan.mesh is not None, case
    assert plan.batch is not None, case
    assert plan.parameters is not None, case
    assert len(plan.stages) == plan.mesh.pp * plan.mesh.vpp, case
    json.dumps(plan.to_dict(), allow_nan=False)
    found = memory_dict(estimate_memory(config, plan.mesh, plan.batch))
    json.dumps(found, allow_nan=False)
    assert len(found["stages"]) == plan.mesh.pp, case
    assert all(size >= 0 for stage in found["stages"] for size in stage.values()), (case, found)
    assert all(stage["weights"] > 0 and stage["activations"] > 0 for stage in found["stages"]), case
    if not time_unknown(config):
        time = time_dict(estimate_time(config, plan.mesh, plan.batch))
        json.dumps(time, allow_nan=False)
        assert time["step_s"]["total"] > 0, case
        assert 0 < time["mfu"] < 1, (case, time["mfu"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("hardware", ["mi300x", "cpu"])
def test_every_plan_is_complete_or_says_why_not(engine: str, hardware: str) -> None:
    backend, complete = load_backend(engine), 0
    for case, config in configs(engine, hardware):
        plan = make_plan(config, local_devices=8)
        require_told(case, [*plan.problems, *backend.check(config, plan.mesh)])
        if not plan.problems or (plan.mesh and plan.batch and plan.stages):  # An estimate is shown beside what is refused too.
            require_complete(case, config, plan)
        complete += not plan.problems
    # What is left are degrees that do not divide a model, and ep or etp of models without experts.
    assert complete > 0.75 * len(MODELS) * len(LAYOUTS)
