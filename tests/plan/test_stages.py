"""Layers and weights of each pipeline stage, by closed forms and published splits."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from primus_app.config.location import conf_dir
from primus_app.config.schema import ModelConfig
from primus_app.plan.mesh import Mesh
from primus_app.plan.parameters import count_parameters
from primus_app.plan.stages import Stage, make_stages, pipeline_ranks, split_layers


def published(name: str) -> ModelConfig:
    return ModelConfig(**yaml.safe_load((conf_dir() / "model" / f"{name}.yaml").read_text()))


def stages_of(model: ModelConfig, **degrees: int) -> tuple[Stage, ...]:
    d: dict[str, Any] = {"tp": 1, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "etp": 1, **degrees}
    world = d["tp"] * d["pp"] * d["ep"]
    mesh = Mesh(world=world, nodes=1, devices_per_node=world, dp_replicate=1, dp_shard=d["ep"], dp=d["ep"], **d)
    return make_stages(model, count_parameters(model), mesh)


def test_llama3_405b_is_7_then_8_then_7_layers() -> None:
    # arXiv 2407.21783, section 3.3.2: one layer fewer on the first and the last of 16 stages.
    assert split_layers(126, 16) == (7, *(8,) * 14, 7)


@pytest.mark.parametrize(
    ("layers", "stages", "split"), [(4, 2, (2, 2)), (4, 3, (1, 2, 1)), (5, 3, None), (2, 3, None), (1, 3, None), (1, 1, (1,))]
)
def test_small_splits(layers: int, stages: int, split: tuple[int, ...] | None) -> None:
    assert split_layers(layers, stages) == split


@given(st.integers(1, 200), st.integers(1, 40))
def test_a_split_has_every_layer_once_and_no_empty_stage(layers: int, stages: int) -> None:
    split = split_layers(layers, stages)
    if split is not None:
        assert (len(split), sum(split)) == (stages, layers)
        assert min(split) >= 1
        assert max(split) - min(split) <= 1


def test_one_stage_on_one_rank_is_the_model() -> None:
    (stage,) = stages_of(published("llama3_8b"))
    assert stage == Stage(0, 0, 32, 8030261248, 8030261248, 0, 0)


@pytest.mark.parametrize("name", ["llama3_8b", "mixtral_8x7b", "gpt_oss_20b"])
def test_stages_add_up_to_the_model(name: str) -> None:
    model = published(name)
    assert sum(stage.parameters for stage in stages_of(model, pp=4)) == count_parameters(model).total


def test_a_tied_embedding_is_on_both_ends() -> None:
    model = published("llama3_2_1b")
    total, table = 1235814400, 128256 * 2048
    assert stages_of(model)[0].parameters == total
    assert sum(stage.parameters for stage in stages_of(model, pp=2)) == total + table


def test_virtual_stages_go_round_in_a_loop() -> None:
    stages = stages_of(published("llama3_8b"), pp=4, vpp=2)
    assert [stage.pipeline_rank for stage in stages] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [stage.first_layer for stage in stages] == [0, 4, 8, 12, 16, 20, 24, 28]
    ranks = pipeline_ranks(stages, 4)
    layer = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert ranks[1] == (8 * layer, 0)
    assert ranks[0] == (8 * layer + 128256 * 4096, 0)


def test_tp_divides_all_of_llama_but_its_norms() -> None:
    norms = 32 * 2 * 4096 + 4096
    (stage,) = stages_of(published("llama3_8b"), tp=8)
    assert stage.parameters_per_rank == (8030261248 - norms) // 8 + norms


def test_latent_projections_and_routers_are_whole_on_each_rank() -> None:
    # DeepSeek-V3: q_a 7168x1536, kv_a 7168x(512+64) and the router 7168x256 are replicated; so are the norms.
    model = published("deepseek_v3")
    (stage,) = stages_of(model, tp=2, ep=4)
    norms = 61 * (2 * 7168 + 1536 + 512) + 7168
    whole = norms + 61 * 7168 * (1536 + 512 + 64) + 58 * 7168 * 256
    experts = 58 * 256 * 3 * 7168 * 2048
    assert stage.experts_per_rank == experts // 4
    assert stage.parameters_per_rank == (671026404352 - whole - experts) // 2 + whole + experts // 4


def test_biases_after_row_parallel_products_are_whole_on_each_rank() -> None:
    # gpt-oss-20b: 24 layers, hidden 2880, 32 experts; o_proj's and the experts' second bias are added once, after the sum over ranks.
    model = published("gpt_oss_20b")
    (whole,), (cut,) = stages_of(model), stages_of(model, tp=2, etp=2, ep=4)
    output_bias, second_bias = 24 * 2880, 24 * 32 * 2880
    assert cut.experts_per_rank == (whole.experts_per_rank - second_bias) // 8 + second_bias // 4
    router, norms = 24 * 32 * (2880 + 1), 24 * 2 * 2880 + 2880
    dense = whole.parameters_per_rank - whole.experts_per_rank
    replicated = output_bias + router + norms
    assert cut.parameters_per_rank - cut.experts_per_rank == (dense - replicated) // 2 + replicated
