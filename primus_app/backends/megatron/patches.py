"""All corrections of megatron-core, in the order in which they are applied."""

from types import ModuleType

from primus_app.backends.megatron.device import DEVICE_PATCHES
from primus_app.backends.megatron.pretrain.hooks import PRETRAIN_PATCHES
from primus_app.backends.megatron.upstream import upstream
from primus_app.backends.megatron.versions import UPSTREAM
from primus_app.backends.megatron.writer_queue import WRITER_QUEUE
from primus_app.backends.patches import Patch

ROUTER_GEMM_ID = "megatron-router-gemm"
LATENT_LINEAR_ID = "megatron-latent-attention-linear"
NO_ENGINE = "Transformer Engine does not import"


def router_gemm_is_needed() -> bool:
    """Whether the name that the router looks up is not there at all."""
    return not hasattr(upstream("megatron.core.transformer.moe.moe_utils"), "te_general_gemm")


def apply_router_gemm() -> None:
    """Give it the value that says so: None."""
    utils = upstream("megatron.core.transformer.moe.moe_utils")
    if not hasattr(utils, "router_gating_linear"):
        raise RuntimeError(f"{ROUTER_GEMM_ID}: megatron.core.transformer.moe.moe_utils.router_gating_linear is gone.")
    utils.__dict__.setdefault("te_general_gemm", None)


def latent_linear_is_needed() -> bool:
    """Whether the class that latent attention knows as whole on every rank is none."""
    return not isinstance(_latent_attention().__dict__.get("TELinear"), type)


def apply_latent_linear() -> None:
    """Ours takes its place, so that a layer's specification may name it."""
    from primus_app.backends.megatron.replicated import ReplicatedLinear

    module = _latent_attention()
    if "TELinear" not in module.__dict__:
        raise RuntimeError(f"{LATENT_LINEAR_ID}: megatron.core.transformer.multi_latent_attention.TELinear is gone.")
    if latent_linear_is_needed():
        module.__dict__["TELinear"] = ReplicatedLinear


def _latent_attention() -> ModuleType:
    return upstream("megatron.core.transformer.multi_latent_attention")


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
        reason="Latent attention takes no projection that each rank has whole but Transformer Engine's; Megatron's own, which tp divides, "
        "loses gradients of the keys' positions.",
        upstream=UPSTREAM,
        target="megatron.core.transformer.multi_latent_attention.TELinear",
        condition=NO_ENGINE,
        is_needed=latent_linear_is_needed,
        apply=apply_latent_linear,
    ),
    WRITER_QUEUE,
    *PRETRAIN_PATCHES,
)
