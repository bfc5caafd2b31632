"""What attention with sinks keeps for the backward pass on a CPU, where no kernel knows them; counted on the modules by the tests."""

from primus_app.plan.memory.attention import output_width, query_width
from primus_app.plan.memory.plain import FLOAT32
from primus_app.plan.memory.widths import Widths, element
from primus_app.plan.workload import Workload

ALIGNMENT = 8
"""Of a head's width, in SinkAttention of backends/megatron/sinks.py."""


def titan_sink_product(workload: Workload) -> Widths:
    """Operation by operation in float32 (backends/torchtitan/attention.py, _with_sums).

    Kept: queries, and keys and values of all query heads; scores and their exponentials, seq_len a head; their log-sum-exp and the
    sinks' share, one a head each; the output before and after it is scaled. The mask is one byte for each pair of positions.
    """
    model, heads = workload.model, workload.model.num_attention_heads
    inputs = FLOAT32 * (2 * query_width(model) + output_width(model))
    scores = 2 * FLOAT32 * heads * (workload.seq_len + 1)
    return Widths(parallel=inputs + scores + 2 * element(workload) * output_width(model), position=workload.seq_len)


def megatron_sink_product(workload: Workload) -> int:
    """Bytes a token of SinkAttention: torch takes its product apart, in float32, and the sink is one key more.

    Queries and keys of all heads with one dimension more, padded; values; the scores' softmax; the output.
    """
    model, heads = workload.model, workload.model.num_attention_heads
    padded = -(-(model.head_dim + 1) // ALIGNMENT) * ALIGNMENT
    return FLOAT32 * heads * (2 * padded + model.head_dim + workload.seq_len + 1) + element(workload) * output_width(model)
