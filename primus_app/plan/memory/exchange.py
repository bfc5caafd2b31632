"""Buffers for what pipeline stages send each other."""

from primus_app.plan.memory.layer_bytes import layer_input
from primus_app.plan.workload import Layout, Number, Workload


def received(workload: Workload, layout: Layout) -> Number:
    """Bytes of TorchTitan's buffers between stages, beside the inputs that are kept as activations.

    torch's PipelineStage makes a buffer to receive into for each micro batch of a step and each direction, and keeps the outputs of
    those in flight (torch, distributed/pipelining/stage.py). A received input is the kept input of its stage's first layer, so
    two for each micro batch are left. Megatron receives into a new tensor each time, which is that input.
    """
    each = layer_input(workload).bytes(workload, layout)
    return (layout.pp > 1) * 2 * layout.num_microbatches * each
