"""The CPU's attention and the float32 experts, against plain formulas."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from primus_app.config.schema import ModelConfig

BATCH, LENGTH, HEADS, KV_HEADS, DIM = 2, 24, 4, 2, 8


def positions_of(*documents: int) -> torch.Tensor:
    return torch.cat([torch.arange(length) for length in documents])


def plain_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """softmax(q k / sqrt(d)) v over the same document's past, in float64; all tensors are [batch, length, heads, dim]."""
    document = (positions == 0).cumsum(1)
    visible = (document[:, :, None] == document[:, None, :]) & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    q, k, v = (tensor.double().transpose(1, 2) for tensor in (query, key, value))
    k, v = (tensor.repeat_interleave(HEADS // KV_HEADS, 1) for tensor in (k, v))
    scores = (q @ k.transpose(-1, -2) / DIM**0.5).masked_fill(~visible[:, None], float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2)


@pytest.mark.parametrize("documents", [((24,), (24,)), ((10, 14), (24,)), ((3, 8, 13), (1, 23))])
def test_attention_is_the_formula_forward_and_backward(documents: tuple[tuple[int, ...], ...], model_of: Any, seeded_model: Any) -> None:
    from primus_app.backends.torchtitan.attention import CpuFlexAttention

    positions = torch.stack([positions_of(*lengths) for lengths in documents])
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(BATCH, LENGTH, heads, DIM, generator=generator, requires_grad=True) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    mask = seeded_model(model_of("llama_tiny"), 0).get_attention_masks(positions)
    out = CpuFlexAttention.Config().build()(*inputs, attention_masks=mask, enable_gqa=True)
    expected = plain_attention(*inputs, positions)
    assert (out - expected).abs().max() < 1e-6
    direction = torch.randn(out.shape, generator=generator)
    ours = torch.autograd.grad((out * direction).sum(), inputs)
    theirs = torch.autograd.grad((expected * direction).sum(), inputs)
    assert all((a - b).abs().max() < 1e-5 for a, b in zip(ours, theirs, strict=True))


def test_only_plain_causal_masks_are_taken_for_such(model_of: Any, seeded_model: Any) -> None:
    from primus_app.backends.torchtitan.attention import dense_mask

    model = seeded_model(model_of("llama_tiny"), 0)
    plain = torch.arange(LENGTH).expand(BATCH, LENGTH)
    packed = torch.stack([positions_of(24), positions_of(4, 20)])
    assert model.get_attention_masks(plain) is model.get_attention_masks(plain)
    assert dense_mask(model.get_attention_masks(plain), LENGTH, LENGTH, plain.device) is None
    dense = dense_mask(model.get_attention_masks(packed), LENGTH, LENGTH, plain.device)
    assert dense is not None
    assert dense[1, 0, 4:, :4].sum() == 0


def test_packed_documents_do_not_see_each_other(model_of: Callable[..., ModelConfig], seeded_model: Any) -> None:
    model = model_of("llama_tiny", init_std=0.06)
    module = seeded_model(model, 3)
    tokens = torch.randint(0, model.vocab_size, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together = _logits(module, tokens, positions_of(10, 14)[None])
        alone = [_logits(module, part, positions_of(part.shape[1])[None]) for part in (tokens[:, :10], tokens[:, 10:])]
    assert (together - torch.cat(alone, 1)).abs().max() < 5e-6


def _logits(module: Any, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return module(tokens.contiguous(), positions, module.get_attention_masks(positions))


def test_experts_are_swiglu_in_float32_forward_and_backward() -> None:
    from primus_app.backends.torchtitan.experts import Float32GroupedExperts

    experts = Float32GroupedExperts.Config(dim=16, hidden_dim=24, num_experts=3).build()
    generator = torch.Generator().manual_seed(0)
    for weight in experts.parameters():
        torch.nn.init.normal_(weight, generator=generator)
    counts = torch.tensor([5, 0, 7])
    x = torch.randn(12, 16, generator=generator, requires_grad=True)
    out = experts(x, counts)
    w1, w2, w3 = (weight.double() for weight in (experts.w1_EFD, experts.w2_EDF, experts.w3_EFD))
    parts = [(functional.silu(part @ w1[i].T) * (part @ w3[i].T)) @ w2[i].T for i, part in enumerate(x.double().split(counts.tolist()))]
    expected = torch.cat(parts)
    assert (out - expected).norm() / expected.norm() < 1e-6
    weights = [x, *experts.parameters()]
    ours = torch.autograd.grad(out.square().sum(), weights)
    theirs = torch.autograd.grad(expected.square().sum(), weights)
    assert all((a - b).norm() / b.norm() < 1e-6 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("compute", "exact"), [("fp32", True), ("bf16", False)])
def test_precision_decides_the_experts(compute: str, exact: bool, model_of: Any) -> None:
    from primus_app.backends.torchtitan.experts import Float32GroupedExperts
    from primus_app.backends.torchtitan.model import build_model_spec

    spec = build_model_spec(model_of("qwen3_moe_tiny"), seq_len=8, cpu=True, compute=compute)  # type: ignore[arg-type]
    with torch.device("meta"):
        experts = [module for module in spec.model.build().modules() if type(module).__name__.endswith("GroupedExperts")]
    assert len(experts) == 4
    assert all(isinstance(module, Float32GroupedExperts) is exact for module in experts)


def test_the_router_scores_in_float32_whatever_the_precision() -> None:
    from primus_app.backends.torchtitan.experts import Float32Gate

    gate = Float32Gate.Config(in_features=16, out_features=8).build().bfloat16()
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    scores = gate(x)
    assert scores.dtype == torch.float32
    assert (scores - x.double() @ gate.weight.double().T).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("name", "load_balancing", "has_bias", "updates"),
    [
        ("qwen3_moe_tiny", "none", False, False),
        ("qwen3_moe_tiny", "expert_bias", True, True),
        ("deepseek_v3_tiny", "none", True, False),
        ("deepseek_v3_tiny", "expert_bias", True, True),
    ],
)
def test_the_selection_bias_is_there_and_moves_as_asked(
    name: str, load_balancing: Any, has_bias: bool, updates: bool, model_of: Any
) -> None:
    from primus_app.backends.torchtitan.model import build_model_spec

    spec = build_model_spec(model_of(name), seq_len=8, load_balancing=load_balancing, cpu=True, compute="fp32")
    with torch.device("meta"):
        buffers = [key for key, _ in spec.model.build().named_buffers() if key.endswith("expert_bias_E")]
    assert bool(buffers) is has_bias
    assert (spec.post_optimizer_build_fn is not None) is updates


def test_every_norm_has_the_models_epsilon(model_of: Any, seeded_model: Any) -> None:
    for name, num_norms in (("llama_tiny", 9), ("qwen3_moe_tiny", 17), ("deepseek_v3_tiny", 17)):
        norms = [module for module in seeded_model(model_of(name, rms_norm_eps=3e-6), 0).modules() if isinstance(module, torch.nn.RMSNorm)]
        assert [norm.eps for norm in norms] == [3e-6] * num_norms
