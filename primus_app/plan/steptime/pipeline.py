"""What each pipeline rank does with a micro batch: layers of its stages, the output layer at the end, and sending to the next stage."""

from dataclasses import dataclass

import numpy as np

from primus_app.plan.steptime.collectives import all_gather_s, group, send_s
from primus_app.plan.steptime.layer_time import layer_passes, output_passes, tokens_of
from primus_app.plan.steptime.passes import Pass
from primus_app.plan.steptime.rates import Rates
from primus_app.plan.workload import Layout, Number, Workload


@dataclass(frozen=True)
class Stages:
    """Seconds of one micro batch.

    Attributes:
        forward, backward: one layer, the mean over those with experts and without.
        output_forward, output_backward: output projection and loss.
        middle: layers of each virtual stage but the first and the last.
        ends: layers of the first and the last virtual stage.
        send: to the next stage.
    """

    forward: Pass
    backward: Pass
    output_forward: Pass
    output_backward: Pass
    middle: Number
    ends: Number
    send: Number


def stages_of(rates: Rates, workload: Workload, layout: Layout) -> Stages:
    """Times of the stages; layers are divided as :func:`primus_app.plan.stages.split_layers` does, or up to the next whole number."""
    model = workload.model
    forward, backward = _mean_layer(rates, workload, layout)
    output_forward, output_backward = output_passes(rates, workload, layout)
    stages = layout.pp * layout.vpp
    layers = model.num_hidden_layers
    even = layers % stages == 0
    middle = np.where(even, layers / stages, np.ceil((layers + 2) / stages))
    ends = np.where(even, middle, np.maximum((layers - middle * (stages - 2)) / 2, 0))
    send = np.where(layout.pp > 1, _send_s(rates, workload, layout), 0.0)
    return Stages(forward, backward, output_forward, output_backward, middle, ends, send)


def _send_s(rates: Rates, workload: Workload, layout: Layout) -> Number:
    """Seconds from a stage to the next: each rank sends what it holds, or a part of it that is gathered there over the node's links
    (arXiv 2104.04473, section 4.1)."""
    whole = 2.0 * tokens_of(workload, layout) * workload.model.hidden_size
    distance = layout.world // layout.pp
    divided = whole / layout.tp
    if workload.waits_for_sends:
        return send_s(rates, divided, distance) + all_gather_s(rates, group(rates, layout.tp), whole)
    return send_s(rates, np.where(layout.sequence_parallel, divided, whole), distance)


def slowest(stages: Stages, layout: Layout) -> tuple[Pass, Pass]:
    """Forward and backward pass of a micro batch on the rank that takes longest: a middle one, or the last with the output layer."""
    layer = stages.forward.total + stages.backward.total
    output = stages.output_forward.total + stages.output_backward.total
    middle = stages.middle * layout.vpp
    last = np.where(layout.pp * layout.vpp == 1, stages.middle, stages.middle * (layout.vpp - 1) + stages.ends)
    at_end = (last * layer + output > middle * layer) | (layout.pp == 1)
    count, outputs = np.where(at_end, last, middle), np.where(at_end, 1.0, 0.0)
    forward = stages.forward.times(count) + stages.output_forward.times(outputs)
    return forward, stages.backward.times(count) + stages.output_backward.times(outputs)


def _mean_layer(rates: Rates, workload: Workload, layout: Layout) -> tuple[Pass, Pass]:
    model = workload.model
    if model.moe is None:
        return layer_passes(rates, workload, layout, experts=False)
    plain = min(model.moe.first_k_dense_replace, model.num_hidden_layers) / model.num_hidden_layers
    routed = layer_passes(rates, workload, layout, experts=True)
    if not plain:
        return routed
    dense = layer_passes(rates, workload, layout, experts=False)
    forward, backward = (one.times(plain) + other.times(1 - plain) for one, other in zip(dense, routed, strict=True))
    return forward, backward
