"""The FLOPs of training on one token by the conventions of the field, which differ by up to a half for the same run."""

from typing import Literal

from primus_app.config.schema import ModelConfig
from primus_app.plan.parameters import attention_flops_per_token, count_parameters

CONVENTIONS = {
    "full": "6 N_active_no_embedding + 12 L h s: causal attention counted full, no recomputation (PaLM, torchtitan; MFU here)",
    "causal": "6 N_active_no_embedding + 6 L h s: only the keys that a token sees (FlashAttention, Megatron-LM with --causal)",
    "full_with_embedding": "6 N_active + 12 L h s: the lookup in the embedding table counted as a product (nanoGPT, llm-foundry)",
    "hardware": "full, and what recomputation does again (HFU)",
}
"""Each by its name in --json; N and attention as in :func:`primus_app.plan.parameters.training_flops_per_token`."""


def flops_by_convention(
    model: ModelConfig, seq_len: int, recompute: Literal["none", "selective", "full"], share: float = 1.0
) -> dict[str, float]:
    """FLOP per token, forward and backward, under each of CONVENTIONS.

    Recomputation runs forward again: full recomputation every layer, ``2·(N - output) + 4·L·h·s``; selective recomputation the core of
    attention, ``4·L·h·s`` (Korthikanti et al., arXiv 2205.05198, appendix A). ``share`` is the part of the layers for which it does.
    """
    count = count_parameters(model)
    attention = attention_flops_per_token(model, seq_len)
    output = count.output or count.embedding
    again = {"none": 0.0, "selective": attention / 3, "full": 2.0 * (count.active_no_embedding - output) + attention / 3}
    full = 6.0 * count.active_no_embedding + attention
    embedding = 6.0 * (count.active - count.active_no_embedding)
    return {
        "full": full,
        "causal": full - attention / 2,
        "full_with_embedding": full + embedding,
        "hardware": full + share * again[recompute],
    }
