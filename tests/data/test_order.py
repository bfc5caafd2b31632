"""The order of samples: a permutation per epoch, the same however it is sliced."""

from hashlib import blake2b

import numpy as np
import pytest

from primus_app.data.order import SampleOrder, global_sample_index

MASK64 = 2**64 - 1


def reference(index: int, num_windows: int, seed: int) -> int:
    """The same permutation in Python's unbounded integers, one index at a time."""
    epoch, value = divmod(index, num_windows)
    raw = blake2b(f"primus_app sample order, seed {seed}, epoch {epoch}".encode(), digest_size=64).digest()
    keys = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, 64, 8)]
    half = 1
    while 4**half < num_windows:
        half += 1
    while True:
        left, right = divmod(value, 2**half)
        for key in keys:
            z = (right + key) & MASK64
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
            left, right = right, left ^ ((z ^ (z >> 31)) % 2**half)
        value = left * 2**half + right
        if value < num_windows:
            return value


@pytest.mark.parametrize("num_windows", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 43354])
def test_each_epoch_reads_each_window_once(num_windows: int) -> None:
    order = SampleOrder(num_windows, seed=1234)
    for epoch in range(3):
        windows = order.window_of(np.arange(epoch * num_windows, (epoch + 1) * num_windows))
        assert np.array_equal(np.sort(windows), np.arange(num_windows))


@pytest.mark.parametrize("num_windows", [1, 5, 17, 1000, 10**12])
def test_agrees_with_the_reference(num_windows: int) -> None:
    order = SampleOrder(num_windows, seed=2**63 - 1)
    indices = np.arange(3 * min(num_windows, 50)) + num_windows // 2
    assert order.window_of(indices).tolist() == [reference(int(index), num_windows, 2**63 - 1) for index in indices]


def test_the_order_of_old_runs_does_not_change() -> None:
    # From reference() above; a run that is resumed after an update must go on with the same data.
    assert SampleOrder(1000, seed=1234).window_of(np.array([0, 1, 2, 999, 1000])).tolist() == [819, 684, 795, 682, 953]


def test_any_slice_in_any_shape_gives_the_same_windows() -> None:
    order = SampleOrder(37, seed=7)
    whole = order.window_of(np.arange(200))
    assert [order.window_of(index) for index in range(200)] == whole.tolist()
    assert np.array_equal(order.window_of(np.arange(200).reshape(4, 50)), whole.reshape(4, 50))
    assert np.array_equal(order.window_of(np.array([150, 3, 74])), whole[[150, 3, 74]])
    assert isinstance(order.window_of(3), int)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [SampleOrder(1000, seed).window_of(np.arange(1000) + epoch * 1000) for seed in (1, 2) for epoch in (0, 1)]
    for i, one in enumerate(orders):
        # Two random permutations agree in one place on average (Poisson); more than 12 has probability 1e-10.
        assert all((one == other).sum() <= 12 for other in orders[:i])


def test_the_order_is_spread_evenly() -> None:
    # Pearson's chi-square of (place, window) over a 10 × 10 grid: 81 degrees of freedom, mean 81, deviation √162; five deviations.
    windows = SampleOrder(10000, seed=3).window_of(np.arange(10000))
    counts = np.histogram2d(np.arange(10000), windows, bins=10)[0]
    assert abs(((counts - 100) ** 2 / 100).sum() - 81) < 5 * 162**0.5


def test_global_sample_index_counts_steps_from_one() -> None:
    assert [global_sample_index(step, 16, position) for step, position in [(1, 0), (1, 15), (2, 0), (3, 5)]] == [0, 15, 16, 37]
