"""Bytes that a rank sends in a step, against the usual formulas written out."""

import pytest

from primus_app.plan.steptime.traffic import bytes_sent
from tests.plan.steptime.test_step_time import layout, work

TOKENS, HIDDEN, LAYERS = 8192, 8192, 80
"""A sample of llama3_70b."""


def test_tensor_and_pipeline_parallel_of_a_dense_model() -> None:
    """Korthikanti et al. (arXiv 2205.05198): a block gathers and scatters 2·s·h bytes of which a rank sends 7/8, and going back gathers
    its input once more; the output layer on the last stage is half a block. A stage sends its eighth of a sample's states."""
    sent = bytes_sent(work(), layout(tp=8, pp=4, num_microbatches=16))
    piece = 7 / 8 * 2 * TOKENS * HIDDEN
    blocks = 2 * LAYERS / 4 + 0.5
    assert sent["tp"] == pytest.approx(16 * blocks * (2 + 3) * piece, rel=0.01)
    assert sent["pp"] == pytest.approx(16 * 2 * 2 * TOKENS * HIDDEN / 8)
    assert sent["cp"] == sent["ep"] == 0


def test_data_parallel_with_a_sharded_optimizer() -> None:
    """Each of 8 ranks sends 7/8 of bfloat16 weights and of float32 gradients."""
    sent = bytes_sent(work("llama3_8b"), layout(dp_shard=8, sharded_optimizer=1, num_microbatches=2))
    assert sent["dp"] == pytest.approx(7 / 8 * (2 + 4) * 8_030_261_248, rel=0.001)


def test_context_parallel_passes_keys_and_values_round() -> None:
    """8 heads of 128, keys and values, in bfloat16: 3 hops forward, and twice as much back."""
    sent = bytes_sent(work(), layout(cp=4, num_microbatches=1))
    assert sent["cp"] == pytest.approx(LAYERS * 3 * (1 + 2) * 2 * TOKENS / 4 * 2 * 8 * 128)


def test_experts_get_their_tokens_and_send_them_back() -> None:
    """DeepSeek-V3: 8 of 256 experts, 58 layers of them; there and back, forward and backward."""
    sent = bytes_sent(work("deepseek_v3", seq_len=4096), layout(ep=8, dp_shard=8, num_microbatches=1))
    assert sent["ep"] == pytest.approx(58 * 4 * 7 / 8 * 2 * 8 * 4096 * 7168, rel=0.01)
