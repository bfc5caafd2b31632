"""What of a configuration Megatron-LM's arguments cannot say, and what its trainer cannot do here. Imports neither torch nor megatron."""

from collections.abc import Iterator

from primus_app.backends.megatron.pretrain.hooks import HOOK_IDS
from primus_app.backends.megatron.pretrain.native import check_native_arguments
from primus_app.backends.megatron.pretrain.table import said_names
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig, OptimizerConfig
from primus_app.plan.batch import resolve_steps
from primus_app.plan.learning_rate import WSD_DECAY_SHARE, warmup_steps
from primus_app.plan.mesh import Mesh

CORE = "backend.runner=core has no such limit"


def check_arguments(config: Config) -> list[Problem]:
    """What no argument says as it is meant."""
    steps = config.optimizer.schedule_steps or resolve_steps(config.training)
    return [
        *_gpt_oss(config.model),
        *_yarn(config.model),
        *_whole_numbers(config.model),
        *_balance(config),
        *(_schedule(config.optimizer, steps) if steps is not None else ()),
    ]


def check_pretrain(config: Config, mesh: Mesh | None) -> list[Problem]:
    """What speaks against backend.runner=pretrain."""
    return [*check_arguments(config), *_hooks(config.backend.patches), *check_native_arguments(config, mesh, said_names())]


def _gpt_oss(model: ModelConfig) -> Iterator[Problem]:
    if model.family == "gpt_oss":
        what = (
            "gpt_oss: its sinks, its SwiGLU and the biases of its experts are parts of ours in megatron-core, not of Megatron-LM's trainer"
        )
        yield Problem("model.family", what, (CORE,))


def _yarn(model: ModelConfig) -> Iterator[Problem]:
    if model.rope_scaling is not None and model.rope_scaling.rope_type == "yarn" and model.mla is None:
        yield Problem("model.rope_scaling.rope_type", "yarn: Megatron-LM has arguments for it only with latent attention", (CORE,))


def _whole_numbers(model: ModelConfig) -> Iterator[Problem]:
    scaling = model.rope_scaling
    if not model.rope_theta.is_integer():
        yield Problem("model.rope_theta", f"{model.rope_theta:g}: Megatron-LM's --rotary-base takes whole numbers", (CORE,))
    if scaling is not None and scaling.rope_type == "linear" and not scaling.factor.is_integer():
        what = f"{scaling.factor:g}: Megatron-LM's --rotary-seq-len-interpolation-factor takes whole numbers"
        yield Problem("model.rope_scaling.factor", what, (CORE,))


def _balance(config: Config) -> Iterator[Problem]:
    """Before 0.19 Megatron scales the balance loss by a sequence's tokens on a rank: right for one whole unmasked sequence alone."""
    if config.training.load_balancing != "aux_loss" or not config.model.moe:
        return
    where, loss = "training.load_balancing", "aux_loss: Megatron-LM's own trainer, before 0.19,"
    if config.data.source == "instructions":
        yield Problem(where, f"{loss} weighs it wrong where tokens are masked, as with data=instructions", (CORE,))
    if config.training.micro_batch_size != 1:
        what = f"{loss} weighs it wrong with more than one sample in a micro batch"
        yield Problem(where, what, ("training.micro_batch_size=1", CORE))
    if config.parallel.tp > 1 or config.parallel.cp > 1:
        what = f"{loss} weighs it wrong where tp {config.parallel.tp} x cp {config.parallel.cp} ranks divide a sequence"
        yield Problem(where, what, ("parallel.tp=1 parallel.cp=1", CORE))


def _schedule(optimizer: OptimizerConfig, steps: int) -> Iterator[Problem]:
    """Megatron's schedule begins at its step 0: its curve is ours only where the first step is one of warm-up, or at the peak."""
    warmup = warmup_steps(optimizer, steps)
    if warmup == 0 and optimizer.schedule in ("cosine", "linear"):
        what = f"0: Megatron-LM's {optimizer.schedule} schedule without warm-up stays a step behind"
        yield Problem("optimizer.warmup_steps", what, ("optimizer.warmup_steps=1 begins at lr", CORE))
    falling = WSD_DECAY_SHARE * (steps - warmup)
    if optimizer.schedule == "wsd" and (falling < 1 or abs(falling - round(falling)) > 1e-9):
        what = f"wsd falls over the last fifth of {steps} - {warmup} steps, and Megatron-LM's --lr-wsd-decay-iters takes whole numbers"
        nearest = max(5, round((steps - warmup) / 5) * 5) + warmup
        yield Problem("optimizer.schedule", what, (f"optimizer.schedule_steps={nearest}", CORE))


def _hooks(choice: str | list[str]) -> Iterator[Problem]:
    missing = [name for name in HOOK_IDS if choice == "none" or (isinstance(choice, list) and name not in choice)]
    if missing:
        what = f"backend.runner=pretrain needs {', '.join(missing)}, which bring our weights and records into it"
        yield Problem("backend.patches", what, ("backend.patches=auto", "backend.runner=core does without"))
