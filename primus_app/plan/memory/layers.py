"""How many layers of each kind a rank of the pipeline has, over all its virtual stages."""

from dataclasses import dataclass

from primus_app.config.schema import ModelConfig
from primus_app.plan.memory.arithmetic import choose, clip, smaller
from primus_app.plan.workload import Layout, Number, Workload


@dataclass(frozen=True)
class StageLayers:
    """The layers of a rank along pp.

    Attributes:
        dense: layers with a plain MLP.
        experts: layers with routed experts.
        is_first: whether it has the embedding.
        is_last: whether it has the final norm and the output projection.
    """

    dense: Number
    experts: Number
    is_first: Number
    is_last: Number

    @property
    def total(self) -> Number:
        """Layers of both kinds."""
        return self.dense + self.experts


def recomputed_layers(workload: Workload, layout: Layout, stage: Number, layers: StageLayers) -> StageLayers:
    """Those of a rank's ``layers`` that full recomputation computes again: the first ones of each of its virtual stages."""
    most, model = workload.recompute_layers, workload.model
    if most is None:
        return layers
    num_stages, leading = layout.pp * layout.vpp, model.moe.first_k_dense_replace if model.moe else model.num_hidden_layers
    even, middle = _middle(model, num_stages)
    dense = total = 0 * layers.total
    for chunk in range(_most(layout.vpp)):
        index = stage + chunk * layout.pp
        first, size = _span(index, num_stages, even, middle)
        again = smaller(size, most) * (chunk < layout.vpp)
        total = total + again
        dense = dense + clip(leading - first, 0, again)
    return StageLayers(dense, total - dense, layers.is_first, layers.is_last)


def stage_layers(model: ModelConfig, layout: Layout, stage: Number) -> StageLayers:
    """The layers of rank ``stage`` along pp, divided as :func:`primus_app.plan.stages.split_layers` does.

    Virtual stage ``stage + c·pp`` for c < vpp. Dense layers come first in a model with experts, so only the first virtual stages count.
    """
    num_stages = layout.pp * layout.vpp
    even, middle = _middle(model, num_stages)
    short = 1 - even
    is_first, is_last = stage == 0, stage == layout.pp - 1
    total = layout.vpp * middle - short * is_first - short * is_last
    leading = model.num_hidden_layers if model.moe is None else model.moe.first_k_dense_replace
    if model.moe is None:
        return StageLayers(total, 0 * total, is_first, is_last)
    dense = 0 * total
    most = _chunks_reached(leading, layout.pp * middle)
    for chunk in range(most):
        index = stage + chunk * layout.pp
        first, size = _span(index, num_stages, even, middle)
        dense = dense + clip(leading - first, 0, size) * (chunk < layout.vpp)
    return StageLayers(dense, total - dense, is_first, is_last)


def _most(number: Number) -> int:
    return int(number.max()) if hasattr(number, "max") else int(number)


def _middle(model: ModelConfig, num_stages: Number) -> tuple[Number, Number]:
    """Whether all virtual stages have as many layers, and those of one between the first and the last."""
    even = model.num_hidden_layers % num_stages == 0
    return even, choose(even, model.num_hidden_layers // num_stages, (model.num_hidden_layers + 2) // num_stages)


def _span(index: Number, num_stages: Number, even: Number, middle: Number) -> tuple[Number, Number]:
    """The first layer of virtual stage ``index`` and how many it has; both ends are one layer short where not all are alike."""
    short = 1 - even
    return index * middle - short * (index > 0), middle - short * (index == 0) - short * (index == num_stages - 1)


def _chunks_reached(leading: int, loop: Number) -> int:
    """Virtual stages of a rank that the dense layers at the beginning can reach into, in the layout where these are most."""
    least = int(loop.min()) if hasattr(loop, "min") else int(loop)
    return 1 + max(leading, 1) // max(least - 1, 1)
