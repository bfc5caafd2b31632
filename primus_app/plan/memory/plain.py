"""What torch's operations that are not fused keep for the backward pass, as both engines use them on a CPU; bytes for each token."""

from primus_app.config.schema import ModelConfig
from primus_app.plan.memory.attention import key_width, output_width, query_width, value_width
from primus_app.plan.memory.widths import element
from primus_app.plan.workload import Workload

FLOAT32 = 4
INT64 = 8


def plain_norm(workload: Workload, width: int, *, groups: int = 1, keeps_output: bool = True) -> int:
    """torch's rms_norm, taken apart: the input in float32, one factor for each group, the normalised input, and the output.

    The output is kept by the product that follows; norms of queries and keys are followed by the rotation, which keeps its tables alone.
    """
    return 2 * FLOAT32 * width + FLOAT32 * groups + (element(workload) * width if keeps_output else 0)


def plain_product(workload: Workload, *, in_core_recompute: bool = False) -> int:
    """scaled_dot_product_attention: queries, keys, values, output and one log-sum-exp a head.

    Where values are not as wide as queries (MLA) torch takes it apart, in float32, and keeps all scores: heads · seq_len a token.
    Recomputation of the core leaves out what is neither input nor output.
    """
    model = workload.model
    wide = FLOAT32 if is_taken_apart(model) else element(workload)
    inputs = query_width(model) + key_width(model) + value_width(model)
    statistics = workload.seq_len if is_taken_apart(model) else 1
    kept = 0 if in_core_recompute else FLOAT32 * model.num_attention_heads * statistics
    return wide * inputs + element(workload) * output_width(model) + kept


def is_taken_apart(model: ModelConfig) -> bool:
    """Whether torch has no fused product on a CPU: it wants heads of values as wide as those of queries."""
    return model.mla is not None and model.mla.v_head_dim != model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim
