"""How many micro batches a pipeline rank holds the activations of at once."""

from primus_app.plan.memory.arithmetic import choose, larger, smaller
from primus_app.plan.workload import Layout, Number, Workload


def in_flight(workload: Workload, layout: Layout, stage: Number) -> Number:
    """Activations of rank ``stage`` that are alive at the peak, in micro batches through all of its layers; may be a fraction.

    1F1B: ``min(m, pp − stage)`` (arXiv 2104.04473, section 2.2). Interleaved: the warm-up of Megatron-core's schedules
    (pipeline_parallel/schedules.py, get_pp_rank_microbatches) is ``2·(pp − stage − 1) + (vpp − 1)·pp`` virtual micro batches, and one
    more is in flight after it, each of them 1/vpp of the rank's layers; TorchTitan's Interleaved1F1B warms up the same.
    GPipe: all m. Zero bubble: ZB-H1 keeps the first stage's memory of 1F1B on every stage, since weight gradients that are put off keep
    their activations (arXiv 2401.10241, section 3).
    """
    whole = layout.num_microbatches
    if workload.schedule == "gpipe":
        return choose(layout.pp > 1, whole, 1 + 0 * whole)
    if workload.schedule == "zero_bubble":
        return smaller(whole, layout.pp)
    plain = smaller(whole, layout.pp - stage)
    if workload.schedule == "1f1b":
        return plain
    chunks = (layout.vpp - 1) * layout.pp + 2 * (layout.pp - stage) - 1
    return choose(layout.vpp > 1, larger(smaller(chunks, whole * layout.vpp), 1) / layout.vpp, plain)
