"""Activation bytes of one layer by closed forms that are written out here; tests/backends counts them on the engines' modules."""

from collections.abc import Callable
from typing import Any

import pytest

from primus_app.plan.memory.layer_bytes import layer_input, layer_widths

Of = Callable[..., Any]
TOKENS = 4096


@pytest.mark.parametrize("tp", [1, 8])
def test_a_fused_llama_layer(tp: int, workload_of: Of, layout_of: Of) -> None:
    # Per token, in bf16: two norms with input and output, q, k, v, output and its log-sum-exp, SwiGLU's 2 + 1 widths;
    # all of it divided by tp (Korthikanti et al., arXiv 2205.05198, table 2: sequence parallelism leaves nothing whole).
    widths = layer_widths(workload_of(), selective=False).dense
    expected = 2 * (4 * 8192 + 8192 + 2 * 1024 + 8192 + 3 * 28672) + 4 * 64
    assert widths.bytes(workload_of(), layout_of(tp=tp)) == TOKENS * expected // tp


def test_without_sequence_parallelism_the_norms_are_whole(workload_of: Of, layout_of: Of) -> None:
    widths = layer_widths(workload_of(), selective=False).dense
    both = [widths.bytes(workload_of(), layout_of(tp=4, sequence_parallel=on)) for on in (False, True)]
    assert both[0] - both[1] == TOKENS * 2 * 4 * 8192 * 3 // 4


def test_selective_recomputation_leaves_the_core_of_attention_out(workload_of: Of, layout_of: Of) -> None:
    fused, plain = workload_of(), workload_of("deepseek_v2_lite", fused=False)
    for workload, saved in ((fused, 4 * 64), (plain, 4 * 16 * TOKENS)):
        none, selective = (layer_widths(workload, selective=on).dense.bytes(workload, layout_of()) for on in (False, True))
        assert none - selective == TOKENS * saved


def test_full_recomputation_keeps_the_input(workload_of: Of, layout_of: Of) -> None:
    assert layer_input(workload_of()).bytes(workload_of(), layout_of(tp=8, micro_batch_size=2)) == 2 * TOKENS * 2 * 8192 // 8


def test_a_fused_layer_of_experts(workload_of: Of, layout_of: Of) -> None:
    # DeepSeek-V3: 8 copies of a token, each with 7168 + 3·2048 elements; heads of 192 and 128; latents of 1536 and 512.
    workload = workload_of("deepseek_v3")
    attention = 2 * (2 * 7168 + 2 * 1536 + 2 * 512 + 64 + 128 * (192 + 192 + 128 + 128)) + 4 * 128
    experts = 2 * 2 * 7168 + 2 * 8 * (7168 + 3 * 2048) + 2 * 3 * 2048 + 4 * (4 * 256 + 1)
    assert layer_widths(workload, selective=False).experts.bytes(workload, layout_of(ep=8, dp_shard=8)) == TOKENS * (attention + experts)


def test_experts_that_tp_divides_see_all_tokens_and_those_it_does_not_a_part(workload_of: Of, layout_of: Of) -> None:
    workload = workload_of("mixtral_8x7b")
    experts = layer_widths(workload, selective=False).experts
    divided, whole = (experts.bytes(workload, layout_of(tp=4, etp=etp)) for etp in (4, 1))
    assert divided - whole == TOKENS * 2 * 2 * 4096 * 3 // 4


def test_torchtitans_selective_policy_saves_every_second_product(workload_of: Of, layout_of: Of) -> None:
    # Llama 3 8B: input, q, v, attention's output with its log-sum-exp, the first of SwiGLU's products and the last.
    workload = workload_of("llama3_8b", engine="torchtitan")
    expected = 2 * (4096 + 4096 + 1024 + 4096 + 14336 + 4096) + 4 * 32
    assert layer_widths(workload, selective=True).dense.bytes(workload, layout_of()) == TOKENS * expected


def test_torchtitan_keeps_what_tp_gathers(workload_of: Of, layout_of: Of) -> None:
    workload = workload_of("llama3_8b", engine="torchtitan", compiled=True)
    widths = layer_widths(workload, selective=False).dense
    parts = 2 * (4096 + 2 * 1024 + 4096 + 2 * 14336) + 4 * 32
    assert widths.bytes(workload, layout_of()) == TOKENS * (parts + 2 * 2 * 4096 + 2 * 4)
    assert widths.bytes(workload, layout_of(tp=8)) == TOKENS * (parts + 2 * 2 * 4096 + 2 * 4) // 8 + TOKENS * 2 * 2 * 4096
