"""Which settings of the recipe contradict each other: the learning rate's schedule, recomputation, and the balancing of experts."""

from collections.abc import Sequence

from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig, OptimizerConfig, TrainingConfig
from primus_app.config.schema.base import Section
from primus_app.plan.neighbours import count, offer
from primus_app.plan.stages import Stage


def check_schedule(optimizer: OptimizerConfig, steps: int | None) -> list[Problem]:
    """Problems of warm-up and rates; ``steps`` is the length of training, None where that is itself a problem."""
    problems = []
    length = optimizer.schedule_steps or steps
    if length is not None and optimizer.warmup_steps is not None and optimizer.warmup_steps > length:
        source = "optimizer.schedule_steps" if optimizer.schedule_steps else "the length of training"
        what = f"warmup_steps {optimizer.warmup_steps} is longer than the schedule of {length} steps ({source})"
        problems.append(Problem("optimizer.warmup_steps", what, offer("optimizer.warmup_steps", dict.fromkeys((length // 10, length)))))
    if optimizer.min_lr is not None and optimizer.schedule == "constant":
        fix = ("leave it out, or choose optimizer.schedule=cosine",)
        problems.append(Problem("optimizer.min_lr", "has no effect with schedule=constant, which stays at lr", fix))
    elif optimizer.min_lr is not None and optimizer.min_lr > optimizer.lr:
        what = f"min_lr {optimizer.min_lr:g} is above lr {optimizer.lr:g}, the peak it falls from"
        fix = (f"optimizer.min_lr={optimizer.lr / 10:g} or optimizer.min_lr={optimizer.lr:g}",)
        problems.append(Problem("optimizer.min_lr", what, fix))
    return problems


def check_effects(config: Config) -> list[Problem]:
    """Settings that another setting leaves without effect."""
    training, checkpoint, data = config.training, config.checkpoint, config.data
    problems = []
    if training.eval_every == 0 and _is_set(training, "eval_steps"):
        problems.append(Problem("training.eval_steps", "has no effect with eval_every=0, which never evaluates", ("leave it out",)))
    if checkpoint.every == 0 and _is_set(checkpoint, "keep"):
        problems.append(Problem("checkpoint.keep", "has no effect with every=0, which saves no checkpoint", ("leave it out",)))
    if checkpoint.every == 0 and checkpoint.async_:
        problems.append(Problem("checkpoint.async", "has no effect with every=0, which saves no checkpoint", ("leave it out",)))
    if training.load_balancing != "aux_loss" and _is_set(training, "aux_loss_coefficient"):
        what = f"has no effect with load_balancing={training.load_balancing}"
        problems.append(Problem("training.aux_loss_coefficient", what, ("leave it out, or training.load_balancing=aux_loss",)))
    if data.source == "mock" and data.cache_dir is not None:
        problems.append(Problem("data.cache_dir", "has no effect on data=mock, which is made as it is read", ("leave it out",)))
    return problems


def check_recompute(training: TrainingConfig, stages: Sequence[Stage]) -> list[Problem]:
    """Problems of training.recompute_layers; ``stages`` are empty where the layout does not come out."""
    where, layers = "training.recompute_layers", training.recompute_layers
    if layers is None:
        return []
    if training.recompute != "full":
        return [Problem(where, f"has no effect with recompute={training.recompute}", ("leave it out, or training.recompute=full",))]
    most = max((stage.num_layers for stage in stages), default=layers)
    if layers <= most:
        return []
    what = f"{layers} is more than the {count(most, 'layer')} of the largest pipeline stage"
    return [Problem(where, what, (*offer(where, [most]), "leave it out: all layers are computed again"))]


def _is_set(section: Section, name: str) -> bool:
    return bool(getattr(section, name) != type(section).model_fields[name].default)


def check_balancing(training: TrainingConfig, model: ModelConfig) -> list[Problem]:
    """Problems of training.load_balancing with the chosen model."""
    balancing = training.load_balancing
    if balancing == "none":
        return []
    if model.moe is None:
        what = f"{balancing} has no effect: {model.name} has no experts"
        return [Problem("training.load_balancing", what, ("training.load_balancing=none",))]
    if balancing == "expert_bias" and not model.moe.expert_bias:
        what = f"expert_bias moves the router's selection bias, and {model.name} has none (model.moe.expert_bias is false)"
        fix = ("training.load_balancing=none, or a model that has one, such as deepseek_v3",)
        return [Problem("training.load_balancing", what, fix)]
    return []
