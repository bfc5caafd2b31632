"""The space of a search, against every combination of degrees put one by one to the checks that a run goes through."""

from collections.abc import Iterator
from itertools import product
from typing import Literal

import numpy as np
import pytest

from primus_app.backends.base import load_backend
from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.config.schema import Config, ParallelConfig
from primus_app.plan.neighbours import divisors
from primus_app.plan.plan import make_plan
from primus_app.plan.search.space import Space, legal_layouts
from primus_app.plan.workload import Layout, Workload

WORLD = 8
MICRO = (1, 2, 4)
NAMES = ("tp", "pp", "vpp", "cp", "dp_replicate", "dp_shard", "ep", "etp", "micro_batch_size")
Engine = Literal["torchtitan", "megatron"]


def config_of(model: str, engine: Engine) -> Config:
    overrides = (f"model={model}", f"backend={engine}", "training.seq_len=1024", "training.global_batch_size=16")
    return load_config(Request((*overrides, f"cluster.devices_per_node={WORLD}", "cluster.nodes=1")), hardware="cpu")


def every_combination(config: Config) -> Iterator[tuple[int, ...]]:
    """All degrees whose product is the world; beyond that, whatever the checks will say."""
    for tp, pp, cp, replicate, shard in product(divisors(WORLD), repeat=5):
        if tp * pp * cp * replicate * shard == WORLD:
            experts = [1] if config.model.moe is None else divisors(config.model.moe.num_experts)
            for vpp, ep, etp, micro in product((1, 2, 4) if pp > 1 else (1,), experts, sorted({1, tp}), MICRO):
                yield tp, pp, vpp, cp, replicate, shard, ep, etp, micro


def is_legal(config: Config, combination: tuple[int, ...]) -> bool:
    values = dict(zip(NAMES, combination, strict=True))
    training = config.training.model_copy(update={"micro_batch_size": values.pop("micro_batch_size")})
    schedule = "interleaved" if values["vpp"] > 1 else "1f1b"
    changed = config.model_copy(update={"training": training, "parallel": ParallelConfig.model_validate({**values, "schedule": schedule})})
    plan = make_plan(changed, local_devices=WORLD)
    return not plan.problems and not load_backend(config.backend.name).check(changed, plan.mesh)


def rows(layout: Layout) -> set[tuple[int, ...]]:
    return set(zip(*(getattr(layout, name).tolist() for name in NAMES), strict=True))


@pytest.mark.parametrize("engine", ["torchtitan", "megatron"])
@pytest.mark.parametrize("model", ["llama_tiny", "qwen3_moe_tiny"])
def test_exactly_the_layouts_that_a_run_accepts(model: str, engine: Engine) -> None:
    config = config_of(model, engine)
    work = Workload(config.model, 1024, 16, engine, "fp32", "1f1b", config.model.vocab_size, fused=False)
    space = Space(WORLD, WORLD, MICRO, ("none",))
    assert rows(legal_layouts(work, space)) == {each for each in every_combination(config) if is_legal(config, each)}


def test_each_layout_uses_all_devices_and_the_whole_batch() -> None:
    config = config_of("llama_tiny", "megatron")
    work = Workload(config.model, 1024, 48, "megatron", "fp32", "1f1b", config.model.vocab_size, fused=False)
    found = legal_layouts(work, Space(24, 8))
    assert len(found.tp) > 0
    assert np.all(found.world == 24)
    assert np.all(found.dp * found.micro_batch_size * found.num_microbatches == 48)


def test_nothing_legal_is_an_empty_space() -> None:
    config = config_of("llama_tiny", "megatron")
    work = Workload(config.model, 1024, 1, "megatron", "fp32", "1f1b", config.model.vocab_size, fused=False)
    assert len(legal_layouts(work, Space(7, 7)).tp) == 0
