"""Every size that a degree has to divide, and that the neighbours offered do."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from primus_app.config.errors import Problem
from primus_app.config.location import conf_dir
from primus_app.config.schema import MlaConfig, ModelConfig, MoeConfig, ParallelConfig, TrainingConfig
from primus_app.plan.divisibility import check_divisibility, degree_allowed

CHOICE = re.compile(r"(parallel|training)\.(\w+)=(\d+)")


def published(name: str) -> ModelConfig:
    return ModelConfig(**yaml.safe_load((conf_dir() / "model" / f"{name}.yaml").read_text()))


def small(**changes: Any) -> ModelConfig:
    sizes = {
        "num_hidden_layers": 12,
        "hidden_size": 96,
        "num_attention_heads": 12,
        "num_key_value_heads": 6,
        "head_dim": 8,
        "intermediate_size": 240,
        "vocab_size": 480,
        "max_position_embeddings": 1024,
    }
    return ModelConfig(name="small", family="llama", **{**sizes, **changes})


EXPERTS = MoeConfig(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=40, num_shared_experts=2)


def check(model: ModelConfig, seq_len: int = 256, **degrees: Any) -> list[Problem]:
    return check_divisibility(model, TrainingConfig(seq_len=seq_len), ParallelConfig(**degrees))


def only_problem(model: ModelConfig, seq_len: int = 256, **degrees: Any) -> Problem:
    problems = check(model, seq_len, **degrees)
    assert len(problems) == 1
    return problems[0]


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("llama3_1_405b", {"tp": 8, "pp": 16}),
        ("llama3_70b", {"tp": 8, "pp": 4}),
        ("llama3_8b", {"tp": 8, "cp": 2}),
        ("deepseek_v3", {"pp": 9, "ep": 64}),
        ("mixtral_8x7b", {"tp": 2, "pp": 4, "ep": 8}),
        ("gpt_oss_20b", {"tp": 8, "etp": 8, "ep": 4}),
    ],
)
def test_known_layouts_of_published_models_are_legal(name: str, degrees: dict[str, int]) -> None:
    assert check(published(name), 4096, **degrees) == []


def test_all_sizes_that_tp_does_not_divide_are_named_with_one_way_out() -> None:
    problem = only_problem(published("llama3_8b"), 8190, tp=3)
    assert problem.where == "parallel.tp"
    assert problem.what == "tp 3 does not divide num_attention_heads 32, num_key_value_heads 8, intermediate_size 14336"
    assert problem.fix == ("parallel.tp=2 or parallel.tp=4",)


def test_key_value_heads_are_not_copied() -> None:
    problem = only_problem(published("llama3_8b"), tp=16)
    assert problem.what == "tp 16 does not divide num_key_value_heads 8"
    assert problem.fix[0] == "parallel.tp=8"
    assert "Megatron-core alone would copy key and value heads" in problem.fix[1]


def test_latent_attention_has_no_key_value_heads_to_divide() -> None:
    assert check(small(num_key_value_heads=1), 240, tp=4)[0].what == "tp 4 does not divide num_key_value_heads 1"
    latent = MlaConfig(kv_lora_rank=7, qk_nope_head_dim=5, qk_rope_head_dim=8, v_head_dim=5)
    assert check(small(num_key_value_heads=1, mla=latent), 240, tp=4) == []


def test_experts_bring_their_own_sizes() -> None:
    model = small(moe=EXPERTS, num_attention_heads=12, num_key_value_heads=12)
    problems = {problem.where: problem for problem in check(model, 240, tp=6, etp=6, ep=4)}
    assert problems["parallel.tp"].what == "tp 6 does not divide the shared experts' width 80"
    # gcd of heads 12, shared width 80, vocabulary 480 and the experts' width 40
    assert problems["parallel.tp"].fix == ("parallel.tp=4 (and parallel.etp the same, or 1)",)
    assert problems["parallel.etp"].what == "etp 6 does not divide moe.moe_intermediate_size 40"
    assert problems["parallel.etp"].fix == ("parallel.etp=1",)
    assert problems["parallel.ep"].what == "ep 4 does not divide moe.num_experts 6"
    assert problems["parallel.ep"].fix == ("parallel.ep=3 or parallel.ep=6",)


@pytest.mark.parametrize("degree", ["ep", "etp"])
def test_expert_degrees_have_no_effect_on_a_dense_model(degree: str) -> None:
    problem = only_problem(small(), 240, **{degree: 2}, **({"tp": 2} if degree == "etp" else {}))
    assert problem == Problem(f"parallel.{degree}", f"{degree} 2 has no effect: small has no experts", (f"parallel.{degree}=1",))


def test_layers_that_the_stages_do_not_divide() -> None:
    problem = only_problem(published("llama3_1_405b"), 8192, tp=8, pp=12)
    assert problem.what == (
        "num_hidden_layers 126 is not divisible by pp 12 x vpp 1 = 12 stages, nor is 126 + 2 (one layer fewer on the first and the last)"
    )
    assert problem.fix == ("parallel.pp=9 or parallel.pp=14",)


def test_more_stages_than_layers() -> None:
    problem = only_problem(small(), pp=4, vpp=4)
    assert problem.what == "num_hidden_layers 12 is fewer than pp 4 x vpp 4 = 16 stages"
    assert problem.fix == ("parallel.pp=3", "parallel.vpp=3")


@pytest.mark.parametrize(
    ("seq_len", "degrees", "what", "fix"),
    [
        (250, {"tp": 3}, "seq_len 250 is not divisible by tp 3 (sequence_parallel) = 3", "training.seq_len=249 or training.seq_len=252"),
        (250, {"cp": 2}, "seq_len 250 is not divisible by 2 x cp 2 = 4", "training.seq_len=248 or training.seq_len=252"),
        (
            250,
            {"tp": 3, "cp": 2},
            "seq_len 250 is not divisible by tp 3 (sequence_parallel) x 2 x cp 2 = 12",
            "training.seq_len=240 or training.seq_len=252",
        ),
    ],
)
def test_sequences_that_the_ranks_cannot_share(seq_len: int, degrees: dict[str, int], what: str, fix: str) -> None:
    problem = only_problem(small(), seq_len, **degrees)
    assert (problem.where, problem.what, problem.fix[0]) == ("training.seq_len", what, fix)


def test_sequence_parallel_can_be_left_out() -> None:
    assert "parallel.sequence_parallel=false" in only_problem(small(), 250, tp=3).fix[1]
    assert check(small(), 250, tp=3, sequence_parallel=False) == []


def test_a_sequence_longer_than_the_model_is_made_for() -> None:
    problem = only_problem(small(), 1200, tp=3)
    assert problem.what == "seq_len 1200 is longer than max_position_embeddings 1024 of small"
    assert problem.fix == ("training.seq_len=1023",)


def test_only_layouts_that_the_machines_hold_are_offered() -> None:
    training = TrainingConfig(seq_len=240)
    offered = check_divisibility(small(), training, ParallelConfig(tp=4), lambda layout: layout.tp != 3)[0].fix
    assert offered == ("parallel.tp=2 or parallel.tp=6",)
    # Where none fits, those that the model allows are still better than silence.
    assert check_divisibility(small(), training, ParallelConfig(tp=4), lambda layout: False)[0].fix == ("parallel.tp=3 or parallel.tp=6",)


SIZES = st.fixed_dictionaries(
    {
        "num_hidden_layers": st.integers(1, 24),
        "num_attention_heads": st.sampled_from([4, 6, 8, 12]),
        "num_key_value_heads": st.sampled_from([2, 4, 6]),
        "intermediate_size": st.sampled_from([96, 120, 128]),
        "vocab_size": st.sampled_from([320, 480, 512]),
        "moe": st.sampled_from([None, EXPERTS]),
    }
)
DEGREES = st.fixed_dictionaries(
    {
        "tp": st.integers(1, 8),
        "pp": st.integers(1, 8),
        "vpp": st.integers(1, 3),
        "cp": st.integers(1, 3),
        "ep": st.integers(1, 6),
    }
)


@given(SIZES, DEGREES, st.booleans(), st.integers(1, 1100))
def test_every_neighbour_is_legal(sizes: dict[str, Any], degrees: dict[str, int], is_etp_tp: bool, seq_len: int) -> None:
    assume(degrees["pp"] > 1 or degrees["vpp"] == 1)
    degrees["etp"] = degrees["tp"] if is_etp_tp else 1
    model = small(**sizes)
    for problem in check(model, seq_len, **degrees):
        for group, key, value in CHOICE.findall(" ".join(problem.fix)):
            changed = {**degrees, "seq_len": seq_len, key: int(value)}
            if key == "tp" and is_etp_tp:
                changed["etp"] = int(value)
            still = check(model, **changed)
            assert problem.what not in [other.what for other in still]
            if group == "parallel":
                assert problem.where not in [other.where for other in still]


@given(SIZES, DEGREES, st.sampled_from(["tp", "pp", "cp", "ep"]), st.integers(1, 12))
def test_an_allowed_degree_has_no_problem_of_its_own(sizes: dict[str, Any], degrees: dict[str, int], degree: str, value: int) -> None:
    model, training = small(**sizes), TrainingConfig(seq_len=720)
    if degree_allowed(model, training, ParallelConfig(**degrees), degree, value):
        problems = check_divisibility(model, training, ParallelConfig(**{**degrees, degree: value}))
        assert not [p for p in problems if p.where == f"parallel.{degree}" and "no experts" not in p.what]
