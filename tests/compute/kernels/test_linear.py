"""The kernel of linear layers with many outputs against PyTorch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedquilt.compute.kernels import build, linear
from fedquilt.compute.kernels.linear import FEW, KERNEL, MANY

pytestmark = pytest.mark.skipif(build.trouble(KERNEL) is not None, reason=f"no kernels here: {build.trouble(KERNEL)}")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 70),
    inputs=st.integers(1, 40),
    outputs=st.integers(MANY, MANY + 200),
    bias=st.booleans(),
    seed=st.integers(0, 5),
)
def test_as_exact_as_torchs(rows, inputs, outputs, bias, seed):
    torch.manual_seed(seed)
    x, weight, added = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs) if bias else None
    exact = functional.linear(x.double(), weight.double(), added if added is None else added.double())
    ours = linear.linear(x, weight, added)
    assert (ours.double() - exact).abs().max() <= 1e-6 * (inputs + 1) * exact.abs().max()


@pytest.mark.parametrize(
    ("rows", "outputs", "ours"), [(1, MANY, True), (FEW, MANY, True), (FEW + 1, MANY, False), (9, MANY - 1, False)]
)
def test_the_kernel_is_for_few_rows_and_many_outputs(rows, outputs, ours, monkeypatch):
    called = []
    monkeypatch.setattr(linear, "library", lambda name: called.append(name) or build.library(name))
    x, weight = torch.randn(rows, 3), torch.randn(outputs, 3)
    torch.testing.assert_close(linear.linear(x, weight, None), functional.linear(x, weight))
    assert bool(called) == ours


def test_any_number_of_dimensions():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(5, 4, 3).transpose(0, 1), torch.randn(MANY, 3), torch.randn(MANY)
    torch.testing.assert_close(linear.linear(x, weight, bias), functional.linear(x, weight, bias))
    assert torch.equal(linear.linear(x[1, 2], weight, bias), linear.linear(x, weight, bias)[1, 2])
    assert linear.linear(x[:0], weight, bias).shape == (0, 5, MANY)
