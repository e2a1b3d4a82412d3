"""The kernel of exact sums against PyTorch's operations, to the bit, and against whole numbers of Python."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.compute.kernels.build import ready
from fedquilt.compute.kernels.exact import KERNEL, _by_torch, add_whole


@pytest.mark.skipif(ready(KERNEL) is None, reason="fedquilt was installed without kernels")
@settings(max_examples=60, deadline=None)
@given(rows=st.integers(0, 5), count=st.integers(0, 70), size=st.integers(-30, 19), seed=st.integers(0, 99))
def test_it_is_torchs_sum_to_the_bit(rows, count, size, seed):
    """With terms from far below 1 to 2^61, where numbers below 2^51 are rounded in another way than those above."""
    rng = np.random.default_rng(seed)
    values = torch.from_numpy((rng.uniform(-1, 1, size=(rows, count)) * 2.0**size).astype("f4"))
    scales = (rng.uniform(0.5, 1, size=rows) * 2.0**42).tolist()
    ours, theirs = torch.ones(count, dtype=torch.int64), torch.ones(count, dtype=torch.int64)
    assert add_whole(ours, values, scales) == _by_torch(theirs, values, scales)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("add", [add_whole, _by_torch])
@pytest.mark.parametrize("place", [0, 24, 50])
def test_ties_are_rounded_to_even(add, place):
    """Also where numbers are so large that another way of rounding is taken."""
    values = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, -3.5, 0.25, 2.0**place]])
    total = torch.zeros(8, dtype=torch.int64)
    assert add(total, values, [1.0]) == [max(3.5, 2.0**place)]
    assert total.tolist() == [0, 2, 2, 0, -2, -4, 0, 2**place]


@pytest.mark.parametrize(
    ("total", "rows", "scales"),
    [
        (torch.zeros(3, dtype=torch.int64), torch.zeros(1, 4), [1.0]),
        (torch.zeros(3, dtype=torch.int64), torch.zeros(2, 3), [1.0]),
        (torch.zeros(3, dtype=torch.int64), torch.zeros(1, 3, dtype=torch.float64), [1.0]),
        (torch.zeros(3, dtype=torch.int32), torch.zeros(1, 3), [1.0]),
        (torch.zeros(6, dtype=torch.int64)[::2], torch.zeros(1, 3), [1.0]),
    ],
)
def test_what_does_not_fit_is_refused(total, rows, scales):
    with pytest.raises(ValueError, match="cannot add"):
        add_whole(total, rows, scales)
