"""All corrections of megatron-core, in the order in which they are applied."""

from types import ModuleType

from primus_app.backends.megatron.device import DEVICE_PATCHES, engine_imports
from primus_app.backends.megatron.pretrain.hooks import PRETRAIN_PATCHES
from primus_app.backends.megatron.stand_ins import NO_ENGINE
from primus_app.backends.megatron.upstream import upstream
from primus_app.backends.megatron.versions import UPSTREAM
from primus_app.backends.megatron.writer_queue import WRITER_QUEUE
from primus_app.backends.patches import Patch

ROUTER_GEMM_ID = "megatron-router-gemm"
LATENT_LINEAR_ID = "megatron-latent-attention-linear"


def no_engine() -> bool:
    """Whether Megatron's own layers are used."""
    return not engine_imports()


def apply_router_gemm() -> None:
    """Give the name that the router looks up the value that says so: None."""
    utils = upstream("megatron.core.transformer.moe.moe_utils")
    if not hasattr(utils, "router_gating_linear"):
        raise RuntimeError(f"{ROUTER_GEMM_ID}: megatron.core.transformer.moe.moe_utils.router_gating_linear is gone.")
    utils.__dict__["te_general_gemm"] = None


def apply_latent_linear() -> None:
    """Ours takes its place, so that a layer's specification may name it."""
    from primus_app.backends.megatron.replicated import ReplicatedLinear

    module = _latent_attention()
    if "TELinear" not in module.__dict__:
        raise RuntimeError(f"{LATENT_LINEAR_ID}: megatron.core.transformer.multi_latent_attention.TELinear is gone.")
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
        is_needed=no_engine,
        apply=apply_router_gemm,
    ),
    Patch(
        id=LATENT_LINEAR_ID,
        reason="Latent attention takes no projection that each rank has whole but Transformer Engine's; Megatron's own, which tp divides, "
        "loses gradients of the keys' positions.",
        upstream=UPSTREAM,
        target="megatron.core.transformer.multi_latent_attention.TELinear",
        condition=NO_ENGINE,
        is_needed=no_engine,
        apply=apply_latent_linear,
    ),
    WRITER_QUEUE,
    *PRETRAIN_PATCHES,
)
