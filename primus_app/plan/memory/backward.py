"""What the backward pass of one layer needs at its peak, beside what the forward pass kept."""

from primus_app.plan.memory.arithmetic import choose, larger, share
from primus_app.plan.memory.layers import StageLayers
from primus_app.plan.memory.logits import CHUNKS
from primus_app.plan.memory.widths import Widths, element
from primus_app.plan.workload import Layout, Number, Workload

FLOAT32 = 4


def layer_gradients(workload: Workload, layout: Layout, layers: StageLayers) -> Number:
    """Bytes at the peak of one layer's backward pass, over the kinds of layers that a stage has.

    Dense: while SwiGLU is undone, the gradients of its two inputs, and of the residual stream twice (that which passes the block by, and
    that which came in). The gradient of its output has just taken the place of the second product's input. Under sequence parallelism a
    product's input and the gradient of it are whole for a moment. Experts: the gradient of each copy of a token before and
    after it is sent back, or of the two inputs of their SwiGLU.
    """
    wide, model = element(workload), workload.model
    hidden = wide * model.hidden_size
    residual = Widths(split=2 * hidden).bytes(workload, layout)
    inside = larger(
        Widths(parallel=2 * wide * model.intermediate_size).bytes(workload, layout),
        choose((layout.tp > 1) * layout.sequence_parallel, 2, 1) * Widths(whole=hidden).bytes(workload, layout),
    )
    dense = (layers.dense > 0) * inside
    if model.moe is None:
        return residual + dense
    copies = Widths(routed=2 * hidden).bytes(workload, layout)
    swiglu = Widths(routed_parallel=2 * wide * model.moe.moe_intermediate_size).bytes(workload, layout)
    return residual + larger(dense, (layers.experts > 0) * larger(copies, swiglu))


def output_gradients(workload: Workload, layout: Layout) -> Number:
    """Bytes at the output layer: its input whole where it is divided along the sequence, and the gradient of that.

    torchtitan's ChunkedLossWrapper (components/loss.py of 0.3.0) gathers the gradients of its chunks in float32, besides that of one
    chunk, and where a micro batch has several samples, copies its input, whose chunks along the sequence do not lie one after another.
    """
    hidden = Widths(whole=element(workload) * workload.model.hidden_size).bytes(workload, layout)
    gathered = (layout.tp > 1) * layout.sequence_parallel * hidden
    if workload.loss != "chunked":
        return hidden + gathered
    gradients = Widths(whole=FLOAT32 * workload.model.hidden_size).bytes(workload, layout) + share(hidden, CHUNKS)
    return gradients + (layout.micro_batch_size > 1) * hidden + gathered
