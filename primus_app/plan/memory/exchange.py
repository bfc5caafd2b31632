"""Buffers for what pipeline stages send each other."""

from primus_app.plan.memory.layer_bytes import layer_input
from primus_app.plan.memory.layers import StageLayers
from primus_app.plan.workload import Layout, Number, Workload


def received(workload: Workload, layout: Layout, layers: StageLayers, in_flight: Number) -> Number:
    """Bytes of TorchTitan's buffers between stages, beside the inputs that are kept as activations.

    torch's PipelineStage (torch 2.13, distributed/pipelining/stage.py) makes a buffer for each micro batch of a step and each direction:
    for inputs on all virtual stages but the first (_setup_forward_recv_info), for the gradients of outputs on all but the last
    (_create_grad_recv_info). It keeps the outputs of micro batches in flight (fwd_cache), which on the last stage are the final norm's,
    counted there. A received input in flight is the kept input of its stage's first layer. With m micro batches, f of them in flight and
    vpp virtual stages that is ``(m - f)·(vpp - [first]) + (m + f)·(vpp - [last])``. Megatron receives into a new tensor each time.
    """
    each, whole = layer_input(workload).bytes(workload, layout), layout.num_microbatches
    inputs = (whole - in_flight) * (layout.vpp - 1 * layers.is_first)
    outputs = (whole + in_flight) * (layout.vpp - 1 * layers.is_last)
    return (layout.pp > 1) * (each * (inputs + outputs) // 1)
