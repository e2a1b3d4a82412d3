"""The kernel of exact sums against PyTorch's operations, to the bit, and against whole numbers of Python."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.compute.kernels.build import installed_library
from fedquilt.compute.kernels.exact import KERNEL, add_whole, add_whole_by_torch


@pytest.mark.skipif(installed_library(KERNEL) is None, reason="fedquilt was installed without kernels")
@settings(max_examples=60, deadline=None)
@given(rows=st.integers(0, 5), count=st.integers(0, 70), size=st.integers(-30, 19), seed=st.integers(0, 99))
def test_it_is_torchs_sum_to_the_bit(rows, count, size, seed):
    """With terms from far below 1 to 2^61, where numbers below 2^51 are rounded in another way than those above."""
    rng = np.random.default_rng(seed)
    values = torch.from_numpy((rng.uniform(-1, 1, size=(rows, count)) * 2.0**size).astype("f4"))
    scales = (rng.uniform(0.5, 1, size=rows) * 2.0**42).tolist()
    ours, theirs = torch.ones(count, dtype=torch.int64), torch.ones(count, dtype=torch.int64)
    assert add_whole(ours, values, scales) == add_whole_by_torch(theirs, values, scales)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("shape", [(2, 65_537), (200, 1000)])
def test_sums_of_many_numbers_are_the_same(shape):
    """PyTorch takes them in parts."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    scales = np.random.default_rng(0).uniform(0.5, 1, size=shape[0]) * 2.0**40
    ours, theirs = torch.zeros(shape[1], dtype=torch.int64), torch.zeros(shape[1], dtype=torch.int64)
    assert add_whole(ours, values, scales.tolist()) == add_whole_by_torch(theirs, values, scales.tolist())
    whole = np.rint(values.double().numpy() * scales[:, None]).astype(np.int64).sum(axis=0)
    assert ours.tolist() == theirs.tolist() == whole.tolist()


def test_numbers_of_other_kinds_are_taken_by_torch():
    total = torch.zeros(6, dtype=torch.int64)
    add_whole(total[::2], torch.tensor([[1.0, 2.5, 3.0]]), [1.0])
    add_whole(total[1:4], torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64), [2.0])
    add_whole(total[3:], torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.bfloat16).flip(1), [1.0])
    assert total.tolist() == [1, 2, 6, 9, 5, 1]
    assert add_whole(torch.zeros(3, device="meta"), torch.zeros(0, 3, device="meta"), []) == []


@pytest.mark.parametrize("add", [add_whole, add_whole_by_torch])
@pytest.mark.parametrize("place", [0, 24, 50, 51, 61])
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
        (torch.zeros(3, dtype=torch.int64), torch.zeros(3), [1.0]),
        (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(1, 2, 3), [1.0]),
    ],
)
def test_what_does_not_fit_is_refused(total, rows, scales):
    with pytest.raises(ValueError, match="cannot add rows"):
        add_whole(total, rows, scales)
