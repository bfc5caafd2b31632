"""The time of a training step and its parts, for one layout or arrays of them, and the timeline of one."""

from dataclasses import dataclass

import numpy as np

from primus_app.config.schema import HardwareConfig
from primus_app.plan.parameters import training_flops_per_token
from primus_app.plan.steptime.data_parallel import exposed_dp_s
from primus_app.plan.steptime.optimizer_time import optimizer_s
from primus_app.plan.steptime.pipeline import Stages, slowest, stages_of
from primus_app.plan.steptime.rates import rates_of
from primus_app.plan.steptime.schedules import Durations, Event, bubble_share, simulate
from primus_app.plan.steptime.weights import rank_weights
from primus_app.plan.workload import Layout, Number, Workload


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step; communication is what computing does not hide, and the parts add up to ``total``.

    Attributes:
        compute: of all micro batches on the slowest pipeline rank, with what is computed again.
        tp, cp, ep, dp: exposed communication by kind of parallelism.
        pp: waiting for what is sent between pipeline stages.
        bubble: waiting while the pipeline fills and drains.
        optimizer: the update of the weights.
        tokens_per_s_per_device: of the whole step.
        mfu: model FLOPs (:func:`primus_app.plan.parameters.training_flops_per_token`) over the peak of the workload's number format.
    """

    compute: Number
    tp: Number
    cp: Number
    ep: Number
    dp: Number
    pp: Number
    bubble: Number
    optimizer: Number
    total: Number
    tokens_per_s_per_device: Number
    mfu: Number


def step_time(workload: Workload, layout: Layout, hardware: HardwareConfig) -> StepTime:
    """Predicted time of a step.

    Raises:
        ValueError: the hardware lacks constants (see :func:`primus_app.plan.steptime.rates.missing_constants`).
    """
    rates = rates_of(hardware, workload)
    stages = stages_of(rates, workload, layout)
    forward, backward = slowest(stages, layout)
    whole, batches = forward + backward, layout.num_microbatches
    weights = rank_weights(workload, layout)
    share = bubble_share(workload.schedule, layout.pp, layout.vpp, batches)
    bubble = share * batches * _filling(stages, layout)
    waits = _sends(workload, layout) * stages.send
    dp = exposed_dp_s(rates, workload, layout, weights, forward.total, backward.total)
    optimizer = optimizer_s(rates, workload, layout, weights)
    total = batches * whole.total + bubble + waits + dp + optimizer
    tokens = layout.dp * layout.micro_batch_size * batches * workload.seq_len / (total * layout.world)
    peak = getattr(hardware.peak_tflops, workload.compute) * 1e12
    mfu = tokens * training_flops_per_token(workload.model, workload.seq_len) / peak
    compute, tp, cp, ep = (batches * part for part in (whole.compute, whole.tp, whole.cp, whole.ep))
    return StepTime(compute, tp, cp, ep, dp, waits, bubble, optimizer, total, tokens, mfu)


def _filling(stages: Stages, layout: Layout) -> Number:
    """Seconds of a micro batch on a rank without the output layer, for which the others wait at both ends of the step."""
    return stages.middle * layout.vpp * (stages.forward.total + stages.backward.total)


def _sends(workload: Workload, layout: Layout) -> Number:
    """Sends a step waits for: there and back through the stages once, and under plain 1F1B twice for each micro batch, as neither
    engine computes while it waits for a neighbour there; interleaved stages have other work meanwhile, but for Megatron's before
    overlap_p2p_comm, which send and receive after each pair of passes (arXiv 2402.15627, section 3.2)."""
    ramp = 2 * (layout.pp - 1)
    interleaved = layout.vpp * layout.num_microbatches if workload.waits_for_sends else 0
    steady = np.where(layout.vpp == 1, 2 * layout.num_microbatches, interleaved)
    return ramp + (0 if workload.schedule == "gpipe" else np.where(layout.pp > 1, steady, 0))


def timeline(workload: Workload, layout: Layout, hardware: HardwareConfig) -> list[Event]:
    """What each pipeline rank does when, in one step of one layout, up to the exchange of gradients.

    Raises:
        ValueError: as :func:`step_time`.
    """
    stages = stages_of(rates_of(hardware, workload), workload, layout)
    count = layout.pp * layout.vpp
    sizes = [float(stages.ends if index in (0, count - 1) and count > 1 else stages.middle) for index in range(count)]
    forward = [size * float(stages.forward.total) for size in sizes]
    backward = [size * float(stages.backward.total) for size in sizes]
    forward[-1] += float(stages.output_forward.total)
    backward[-1] += float(stages.output_backward.total)
    # The two products of the backward pass are as long as each other; what is not a product stays with the inputs' pass.
    weight = [size * float(stages.backward.products) / 2 if workload.schedule == "zero_bubble" else 0.0 for size in sizes]
    inputs = [whole - part for whole, part in zip(backward, weight, strict=True)]
    durations = Durations(tuple(forward), tuple(inputs), tuple(weight), float(stages.send))
    return simulate(workload.schedule, layout.pp, layout.vpp, layout.num_microbatches, durations)
