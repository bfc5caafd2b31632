"""The arguments as text for a shell, and what else Megatron-LM alone needs, or does otherwise than this program."""

import shlex
from collections.abc import Iterator, Sequence

from primus_app.backends.megatron.pretrain.recorded_arguments import recorded_versions
from primus_app.backends.megatron.pretrain.row import Source
from primus_app.backends.megatron.pretrain.table import YARN, Argument
from primus_app.backends.native.check import flatten
from primus_app.plan.stage_rules import stops_at_borders


def as_text(found: Sequence[Argument]) -> str:
    """One argument a line, each but the last going on in the next, to be put after a command."""
    return " \\\n".join(shlex.join([name, *values]) for name, values in found) + "\n"


def notes(source: Source) -> Iterator[str]:
    """What the arguments leave to the user, or cannot say."""
    config, model = source.config, source.config.model
    versions = recorded_versions()
    yield f"arguments of Megatron-LM {versions[0]} to {versions[-1]} for {source.mesh.world} ranks: torchrun … pretrain_gpt.py and these"
    if source.mesh.tp * source.mesh.cp > 1:
        yield "Megatron-LM wants CUDA_DEVICE_MAX_CONNECTIONS=1 in its environment"
    if config.training.deterministic:
        yield "Megatron-LM wants NCCL_ALGO=Ring in its environment"
    if config.data.source not in ("mock", "indexed"):
        yield f"data.source={config.data.source} has no argument: add --data-path with .bin/.idx pairs of yours"
    yield "tokens are taken as they are (NullTokenizer), in Megatron-LM's own order of samples"
    if config.data.source == "instructions" and stops_at_borders(config):
        yield "examples that share a window are kept apart here; --reset-position-ids --reset-attention-mask do so in Megatron-LM"
    if model.init == "seeded":
        yield "the first weights are Megatron-LM's own: seeded ones depend on this program"
    if config.checkpoint.load is not None:
        yield f"checkpoint.load={config.checkpoint.load} has no argument: convert it to Megatron's format and add --load DIR --finetune"
    if config.checkpoint.every:
        yield "add --save DIR for checkpoints"
    if config.logging.tensorboard:
        yield "add --tensorboard-dir DIR for TensorBoard"
    for field in flatten(config.backend.native) if config.backend.runner == "core" else ():
        yield f"backend.native.{field} is a field of runner=core: see that the arguments say it, or give it to backend.runner=pretrain"
    scaling = model.rope_scaling
    for key, default in YARN.items():
        value = getattr(scaling, key.rpartition(".")[2]) if scaling is not None and model.mla is not None else None
        if value is not None and value != default:
            yield f"{key}={value:g} has no argument before 0.19: Megatron-LM takes {default:g}"
