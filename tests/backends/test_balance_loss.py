"""The balance loss of hand-made routings, its value and gradient."""

import pytest
import torch

from primus_app.backends.balance_loss import balance_loss, choices, with_loss

UNEVEN = torch.tensor([[[3.0, 1.0], [3.0, 1.0], [3.0, 1.0], [1.0, 3.0]]])
"""Four tokens of one sequence, two experts, of which the first has three tokens."""


def test_a_hand_made_routing() -> None:
    """f = 2/4 (3, 1), P = (0.625, 0.375): 1.5 * 0.625 + 0.5 * 0.375. The gradient of a score s_i of a token whose scores sum to S is
    (f_i - sum_j f_j s_j / S) / (4 S)."""
    scores = UNEVEN.clone().requires_grad_()
    chosen = choices(scores, 1)
    assert chosen.tolist() == [[3.0, 1.0]]
    loss = balance_loss(scores, chosen, 1, 4)
    assert loss.item() == pytest.approx(1.125)
    loss.backward()
    assert scores.grad is not None
    first, last = [0.25 / 16, -0.75 / 16], [0.75 / 16, -0.25 / 16]
    torch.testing.assert_close(scores.grad, torch.tensor([[first, first, first, last]]))


def test_an_even_load_is_1_and_one_expert_for_all_is_the_number_of_experts() -> None:
    even = torch.tensor([[[0.5, 0.5, 1e-7, 0.0], [0.0, 1e-7, 0.5, 0.5]]])
    assert balance_loss(even, choices(even, 2), 2, 2).item() == pytest.approx(1.0)
    alone = torch.tensor([[[0.0, 1.0, 0.0, 0.0]] * 3])
    assert balance_loss(alone, choices(alone, 1), 1, 3).item() == pytest.approx(4.0)


def test_sequences_add_up_and_a_batch_is_no_sequence() -> None:
    """Turned round, the second sequence makes the load of both even, and each is as uneven as before."""
    both = torch.cat([UNEVEN, UNEVEN.flip(-1)])
    assert balance_loss(both, choices(both, 1), 1, 4).item() == pytest.approx(2 * 1.125)


def test_parts_of_a_sequence_make_the_whole() -> None:
    chosen = choices(UNEVEN, 1)
    parts = sum(balance_loss(part, chosen, 1, 4).item() for part in UNEVEN.split(1, dim=1))
    assert parts == pytest.approx(1.125)


def test_the_carrier_goes_through_and_the_loss_counts_backward() -> None:
    """d(sum of the carrier) + 5 d(x^2) at x = 3; the tally is half of 9, once in the backward pass."""
    carrier, x, tally = torch.ones(2, requires_grad=True), torch.tensor(3.0, requires_grad=True), torch.zeros(())
    out = with_loss(carrier, x**2, 5.0, tally, 0.5)
    assert out.tolist() == [1.0, 1.0]
    assert tally.item() == 0.0
    out.sum().backward()
    assert carrier.grad is not None
    assert x.grad is not None
    assert (carrier.grad.tolist(), x.grad.item(), tally.item()) == ([1.0, 1.0], 30.0, 4.5)
