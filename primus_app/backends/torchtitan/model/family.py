"""What a family of models is to TorchTitan, and what all of them share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torchtitan.models.common import Embedding, Linear, RMSNorm
from torchtitan.models.common.decoder import Decoder
from torchtitan.models.common.moe import TokenChoiceTopKRouter
from torchtitan.models.common.param_init import skip_param_init
from torchtitan.protocols.state_dict_adapter import StateDictAdapter

from primus_app.config.schema import ModelConfig, MoeConfig

ATTENTION = "flex"
"""TorchTitan's masked attention that runs on every accelerator; the CPU takes its place by CpuFlexAttention."""


@dataclass(frozen=True)
class Family:
    """TorchTitan's parts for one family: ``build_config(model, seq_len)`` and the functions its trainer needs."""

    name: str
    build_config: Callable[[ModelConfig, int], Decoder.Config]
    cpu_model: type[Decoder]
    parallelize: Callable[..., nn.Module]
    adapter: type[StateDictAdapter]


def ends_of(
    model: ModelConfig, *, embedding_init: dict[str, Any], output_init: dict[str, Any], norm_init: dict[str, Any]
) -> dict[str, Any]:
    """The fields of a decoder's configuration before and after its layers; the inits are for model.init=native."""
    rows, width = model.vocab_size, model.hidden_size
    # With tied weights the output layer's init is the one that counts, as in TorchTitan's own models.
    embedding = {"weight": skip_param_init} if model.tie_word_embeddings else embedding_init
    return {
        "dim": width,
        "vocab_size": rows,
        "enable_weight_tying": model.tie_word_embeddings,
        "tok_embeddings": Embedding.Config(num_embeddings=rows, embedding_dim=width, param_init=embedding),
        "norm": RMSNorm.Config(normalized_shape=width, param_init=norm_init),
        "lm_head": Linear.Config(in_features=width, out_features=rows, param_init=output_init),
    }


def set_routing(router: TokenChoiceTopKRouter.Config, moe: MoeConfig) -> None:
    """Set how the router scores, chooses and weighs experts; groups of one are no groups."""
    grouped = moe.topk_method == "noaux_tc" and moe.n_group > 1
    router.score_func = moe.score
    router.route_norm = moe.norm_topk_prob
    router.route_scale = moe.routed_scaling_factor
    router.num_expert_groups = moe.n_group if grouped else None
    router.num_limited_groups = moe.topk_group if grouped else None
