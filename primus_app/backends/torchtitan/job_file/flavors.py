"""TorchTitan's models by name and flavor, as the model of conf/model/ with the same architecture."""

from collections.abc import Mapping
from dataclasses import dataclass

from primus_app.config.compose import groups
from primus_app.config.errors import Problem
from primus_app.config.suggest import did_you_mean, nearest


@dataclass(frozen=True)
class Flavor:
    """One of TorchTitan's models.

    Attributes:
        overrides: the model here.
        layers: transformer layers, by which a pipeline is divided.
        balances: whether it has experts whose selection bias TorchTitan moves.
        biased: whether the model here has that bias, so that it can be moved.
        note: what to know, or what differs.
        exact: whether it computes what TorchTitan's does.
    """

    overrides: tuple[str, ...]
    layers: int
    balances: bool = False
    biased: bool = False
    note: str = ""
    exact: bool = True


def _model(base: str, /, **changes: object) -> tuple[str, ...]:
    return (f"model={base}", *(f"model.{key.replace('__', '.')}={value}" for key, value in changes.items()))


LLAMA31_ROPE = "{rope_type:llama3,factor:8.0,original_max_position_embeddings:8192,low_freq_factor:1.0,high_freq_factor:4.0}"
OLD_ROPE = "torchtitan 0.2 stretches positions as Llama 3.1 does: model={} is that one"
NEW_ROPE = "releases before 0.2 did not stretch positions: model={} is that one"
EPS = "norms have the epsilon of DeepSeek's own models, 1e-6; TorchTitan's had 1e-5"

DEBUG_LLAMA3 = _model(
    "llama_tiny",
    num_hidden_layers=6,
    hidden_size=256,
    num_attention_heads=16,
    num_key_value_heads=16,
    head_dim=16,
    intermediate_size=768,
    vocab_size=2048,
    max_position_embeddings=131072,
    rope_theta=500000.0,
    rope_scaling=LLAMA31_ROPE,
)
QWEN3_SIZES = {
    "num_hidden_layers": 8,
    "hidden_size": 256,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 2048,
    "max_position_embeddings": 4096,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
}
DEBUG_QWEN3 = _model("qwen3_tiny", **QWEN3_SIZES, intermediate_size=3072, tie_word_embeddings="true")
DEBUG_QWEN3_MOE = _model(
    "qwen3_moe_tiny",
    **QWEN3_SIZES,
    tie_word_embeddings="false",
    moe__num_experts=64,
    moe__num_experts_per_tok=8,
    moe__moe_intermediate_size=768,
    moe__norm_topk_prob="true",
)
DEBUG_DEEPSEEK = _model(
    "deepseek_v2_lite",
    num_hidden_layers=6,
    hidden_size=256,
    intermediate_size=1024,
    vocab_size=2048,
    rms_norm_eps=1e-5,
    moe__num_experts=8,
    moe__num_experts_per_tok=3,
    moe__moe_intermediate_size=256,
)

LLAMA3_OLD = {
    "1B": Flavor(_model("llama3_2_1b"), 16),
    "3B": Flavor(_model("llama3_2_3b"), 28),
    "8B": Flavor(_model("llama3_8b"), 32, note=OLD_ROPE.format("llama3_1_8b")),
    "70B": Flavor(_model("llama3_70b"), 80, note=OLD_ROPE.format("llama3_1_70b")),
    "405B": Flavor(_model("llama3_1_405b"), 126, note="positions are stretched as in Llama 3.1; releases before 0.2 did not", exact=False),
    "debugmodel": Flavor(tuple(text for text in DEBUG_LLAMA3 if "rope_scaling" not in text), 6),
}
LLAMA3 = {
    **LLAMA3_OLD,
    "8B": Flavor(_model("llama3_1_8b"), 32, note=NEW_ROPE.format("llama3_8b")),
    "70B": Flavor(_model("llama3_1_70b"), 80, note=NEW_ROPE.format("llama3_70b")),
    "405B": Flavor(_model("llama3_1_405b"), 126),
    "debugmodel": Flavor(DEBUG_LLAMA3, 6),
}
QWEN3 = {
    **{
        size: Flavor(_model(f"qwen3_{size.lower().replace('.', '_')}"), layers)
        for size, layers in {"0.6B": 28, "1.7B": 28, "4B": 36, "8B": 36, "14B": 40, "32B": 64}.items()
    },
    "30B-A3B": Flavor(_model("qwen3_30b_a3b"), 48, balances=True),
    "235B-A22B": Flavor(_model("qwen3_235b_a22b"), 94, balances=True),
    "debugmodel": Flavor(DEBUG_QWEN3, 8),
    "debugmodel_moe": Flavor(DEBUG_QWEN3_MOE, 8, balances=True),
}
DEEPSEEK = {
    "16B": Flavor(_model("deepseek_v2_lite"), 27, balances=True, note=f"the true architecture of 16B; {EPS}", exact=False),
    "671B": Flavor(_model("deepseek_v3"), 61, balances=True, biased=True, note=EPS, exact=False),
    "debugmodel": Flavor(DEBUG_DEEPSEEK, 6, balances=True),
}

MASKED_ENDINGS = ("_flex_attn", "_varlen_attn", "_flex", "_varlen")
"""Endings of flavors whose attention stops at document borders."""

REFUSED = {
    ("deepseek_v3", "236B"): (
        "ranks groups of experts by their two best ones, DeepSeek-V2 by the best one; the published model is not trained here yet",
        "`plan model=deepseek_v2` shows it",
    )
}
"""Flavors that are known and cannot be told in our settings: why, and what there is."""

ADVICE = ("convert its config.json: model=hf model.path=<config.json>, where its family is one of those here",)


def find_flavor(name: str, flavor: str, *, before_0_2: bool) -> tuple[Flavor | None, bool, Problem | None]:
    """The model, whether its attention stops at document borders, and what is wrong where there is none."""
    family = next((each for each in ("llama3", "qwen3", "deepseek_v3") if each in name.replace("deepseekv3", "deepseek_v3")), None)
    if family is None or name.startswith(("qwen3_vl", "qwen3_next")):
        return None, False, Problem("model.name", f"TorchTitan's model {name!r} has no counterpart here", ADVICE)
    flavors: Mapping[str, Flavor] = {"llama3": LLAMA3_OLD if before_0_2 else LLAMA3, "qwen3": QWEN3, "deepseek_v3": DEEPSEEK}[family]
    ending = next((each for each in MASKED_ENDINGS if flavor.endswith(each)), "")
    if (family, flavor) in REFUSED:
        what, fix = REFUSED[family, flavor]
        return None, False, Problem("model.flavor", f"TorchTitan's {flavor} of {name} {what}", (fix,))
    found = flavors.get(flavor.removesuffix(ending))
    if found is None:
        near = nearest(flavor, flavors, cutoff=0.5)
        return None, False, Problem("model.flavor", f"{name} has no flavor {flavor!r} known here", did_you_mean(near) or ADVICE)
    assert found.overrides[0].partition("=")[2] in groups()["model"]
    return found, bool(ending) or (family == "deepseek_v3" and flavor != "debugmodel"), None
