"""The output layer at the end of the last stage: logits, cross entropy and the gradients of both."""

from primus_app.plan.memory.arithmetic import choose, share
from primus_app.plan.memory.widths import element, tokens
from primus_app.plan.workload import Layout, Number, Workload

FLOAT32 = 4
CHUNKS = 8
"""Parts that torchtitan's ChunkedLossWrapper divides the tokens into by default."""


def logits_bytes(workload: Workload, layout: Layout) -> Number:
    """Bytes at the peak of the loss and its gradient, of one micro batch on one rank of tp."""
    each = share(workload.padded_vocab, layout.tp)
    here = tokens(workload, layout)
    if workload.loss == "chunked":
        here = share(here, CHUNKS)
    return here * each * _bytes_each(workload, layout)


def _bytes_each(workload: Workload, layout: Layout) -> Number:
    """Bytes for each logit.

    Fused: Megatron with Transformer Engine's cross entropy writes the gradient in the place of the logits; torch.compile reads the
    logits twice and writes the gradient. Plain, Megatron: the logits, and in float32 the softmax, which becomes the gradient in place
    (tensor_parallel/cross_entropy.py); with float32 logits both are one. Plain, torchtitan: log_softmax's output,
    the gradient of nll_loss and that of log_softmax, each float32 (torch, cross_entropy without fusion); with tp the loss over a
    divided vocabulary keeps the log probabilities and takes three more steps of the same size (torch, tensor/parallel/loss.py).
    """
    wide = element(workload)
    if workload.engine == "megatron":
        return wide if workload.loss == "fused" or wide == FLOAT32 else wide + FLOAT32
    if workload.loss == "fused":
        return 2 * wide
    return choose(layout.tp > 1, 4 * FLOAT32, 3 * FLOAT32)


def output_weights(workload: Workload, layout: Layout) -> Number:
    """Elements of a rank's part of the output projection."""
    return share(workload.padded_vocab, layout.tp) * workload.model.hidden_size
