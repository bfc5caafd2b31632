"""What to change where a run does not fit: single steps in several directions, each tried, those that fit told."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from primus_app.config.schema import Config, ParallelConfig, TrainingConfig
from primus_app.plan.batch import Batch
from primus_app.plan.mesh import Mesh
from primus_app.plan.neighbours import divisors

Needs = Callable[[Config], float | None]
"""Bytes that a configuration needs of what is there, as a fraction; None for one that is not legal."""

MOST = 6
"""Ways that are told."""

PARTS = 8
"""Of a stage's layers, of which one to all but one are tried to be computed again."""


def ways_to_fit(config: Config, mesh: Mesh, batch: Batch, needs: Needs) -> list[str]:
    """Overrides that make it fit, each by itself, with what they bring; the first of each direction that does."""
    found = []
    for steps in _directions(config, mesh, batch):
        for typed, other in steps:
            share = needs(other)
            if share is not None and share <= 1:
                found.append(f"{typed}  ({100 * share:.0f} % of the memory)")
                break
    return found[:MOST]


def _directions(config: Config, mesh: Mesh, batch: Batch) -> Iterator[Sequence[tuple[str, Config]]]:
    training, parallel = config.training, config.parallel
    orders = {"none": ("selective", "full"), "selective": ("full",), "full": ()}
    yield [_trained(config, training, {"recompute": name}) for name in orders[training.recompute]]
    if training.recompute != "full":
        most = config.model.num_hidden_layers // (mesh.pp * mesh.vpp)
        some = range(step := -(-most // PARTS), most, step)
        yield [_trained(config, training, {"recompute": "full", "recompute_layers": number}) for number in some]
    if training.recompute_layers is not None:
        yield [_trained(config, training, {"recompute_layers": None})]
    smaller = [size for size in reversed(divisors(batch.micro_batch_size)) if size < batch.micro_batch_size]
    yield [_trained(config, training, {"micro_batch_size": size}) for size in smaller]
    if smaller:
        yield [_trained(config, training, {"recompute": name, "micro_batch_size": smaller[-1]}) for name in orders[training.recompute]]
    if mesh.dp_replicate > 1:
        yield [_laid_out(config, parallel, {"dp_replicate": 1, "dp_shard": "auto"})]
    yield [_laid_out(config, parallel, {"tp": mesh.tp * factor} | _along(parallel, mesh.tp * factor)) for factor in (2, 4, 8)]
    yield [_laid_out(config, parallel, {"pp": mesh.pp * factor}) for factor in (2, 4, 8)]
    yield [_laid_out(config, parallel, {"cp": mesh.cp * factor}) for factor in (2, 4, 8)]
    if config.model.moe is not None:
        yield [_laid_out(config, parallel, {"ep": mesh.ep * factor}) for factor in (2, 4, 8, 16)]


def _along(parallel: ParallelConfig, tp: int) -> dict[str, int]:
    """An etp that is tp goes along with it."""
    return {"etp": tp} if parallel.etp == parallel.tp > 1 else {}


def _trained(config: Config, training: TrainingConfig, changes: dict[str, str | int | None]) -> tuple[str, Config]:
    typed = " ".join(f"training.{name}={'null' if value is None else value}" for name, value in changes.items())
    return typed, config.model_copy(update={"training": training.model_copy(update=changes)})


def _laid_out(config: Config, parallel: ParallelConfig, changes: Mapping[str, int | str]) -> tuple[str, Config]:
    typed = " ".join(f"parallel.{name}={value}" for name, value in changes.items())
    return typed, config.model_copy(update={"parallel": parallel.model_copy(update=changes)})
