"""All corrections of megatron-core, in the order in which they are applied."""

import importlib

from primus_app.backends.megatron.device import DEVICE_PATCHES, UPSTREAM
from primus_app.backends.megatron.pretrain.hooks import PRETRAIN_PATCHES
from primus_app.backends.patches import Patch

ROUTER_GEMM_ID = "megatron-router-gemm"
LATENT_LINEAR_ID = "megatron-latent-attention-linear"
NO_ENGINE = "Transformer Engine does not import"


def router_gemm_is_needed() -> bool:
    """Whether the name that the router looks up is not there at all."""
    return not hasattr(importlib.import_module("megatron.core.transformer.moe.moe_utils"), "te_general_gemm")


def apply_router_gemm() -> None:
    """Give it the value that says so: None."""
    utils = importlib.import_module("megatron.core.transformer.moe.moe_utils")
    if not hasattr(utils, "router_gating_linear"):
        raise RuntimeError(f"{ROUTER_GEMM_ID}: megatron.core.transformer.moe.moe_utils.router_gating_linear is gone.")
    utils.__dict__.setdefault("te_general_gemm", None)


def latent_linear_is_needed() -> bool:
    """Whether latent attention would be compared with a class that is none."""
    return not isinstance(_latent_attention().__dict__.get("TELinear"), type)


def apply_latent_linear() -> None:
    """A class that nothing is an instance of."""
    module = _latent_attention()
    if "TELinear" not in module.__dict__:
        raise RuntimeError(f"{LATENT_LINEAR_ID}: megatron.core.transformer.multi_latent_attention.TELinear is gone.")
    if not isinstance(module.__dict__["TELinear"], type):
        module.__dict__["TELinear"] = type("NoTELinear", (), {})


def _latent_attention() -> object:
    return importlib.import_module("megatron.core.transformer.multi_latent_attention")


PATCHES: tuple[Patch, ...] = (
    *DEVICE_PATCHES,
    Patch(
        id=ROUTER_GEMM_ID,
        reason="The router asks for Transformer Engine's matrix product by a name that is not defined without it.",
        upstream=UPSTREAM,
        target="megatron.core.transformer.moe.moe_utils.te_general_gemm",
        condition=NO_ENGINE,
        is_needed=router_gemm_is_needed,
        apply=apply_router_gemm,
    ),
    Patch(
        id=LATENT_LINEAR_ID,
        reason="Latent attention compares its projections with Transformer Engine's class, which without it is no class.",
        upstream=UPSTREAM,
        target="megatron.core.transformer.multi_latent_attention.TELinear",
        condition=NO_ENGINE,
        is_needed=latent_linear_is_needed,
        apply=apply_latent_linear,
    ),
    *PRETRAIN_PATCHES,
)
