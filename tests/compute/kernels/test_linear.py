"""The kernel of linear layers with many outputs against PyTorch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedquilt.compute.kernels import build, linear
from fedquilt.compute.kernels.linear import INPUTS, KERNEL, LEAST_OUTPUTS, ROWS

pytestmark = pytest.mark.skipif(build.trouble(KERNEL) is not None, reason=f"no kernels here: {build.trouble(KERNEL)}")


@pytest.fixture
def called(monkeypatch):
    names = []
    monkeypatch.setattr(linear, "library", lambda name: names.append(name) or build.library(name))
    return names


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(ROWS[0], 70),
    inputs=st.sampled_from([INPUTS[0], 65, 100, 257, INPUTS[-1]]),
    outputs=st.integers(LEAST_OUTPUTS, LEAST_OUTPUTS + 100),
    bias=st.booleans(),
    seed=st.integers(0, 5),
)
def test_about_as_exact_as_torchs(rows, inputs, outputs, bias, seed):
    """Sums of so many products in one order lose somewhat more than PyTorch's, which add up parts."""
    torch.manual_seed(seed)
    x, weight, added = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs) if bias else None
    exact = functional.linear(x.double(), weight.double(), added if added is None else added.double())
    ours, theirs = (f(x, weight, added).double() - exact for f in (linear.linear, functional.linear))
    assert ours.square().mean() <= 30 * theirs.square().mean()
    assert ours.abs().max() <= 1e-5 * exact.abs().max()


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "ours"),
    [
        (ROWS[0], INPUTS[0], LEAST_OUTPUTS, True),
        (ROWS[-1], INPUTS[-1], LEAST_OUTPUTS, True),
        (ROWS[0] - 1, INPUTS[0], LEAST_OUTPUTS, False),
        (ROWS[-1] + 1, INPUTS[0], LEAST_OUTPUTS, False),
        (ROWS[0], INPUTS[0] - 1, LEAST_OUTPUTS, False),
        (ROWS[0], INPUTS[-1] + 1, LEAST_OUTPUTS, False),
        (ROWS[0], INPUTS[0], LEAST_OUTPUTS - 1, False),
    ],
)
def test_which_sizes_the_kernel_takes(rows, inputs, outputs, ours, called):
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    torch.testing.assert_close(linear.linear(x, weight, None), functional.linear(x, weight), rtol=1e-4, atol=1e-4)
    assert bool(called) == ours


def test_any_layout(called):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(9, 4, 80).transpose(0, 1), torch.randn(1024, 80), torch.randn(1024)
    torch.testing.assert_close(linear.linear(x, weight, bias), functional.linear(x, weight, bias), rtol=1e-4, atol=1e-4)
    assert len(called) == 1
    turned = weight.T.contiguous().T
    assert torch.equal(linear.linear(x, turned, bias), functional.linear(x, turned, bias))
    assert torch.equal(linear.linear(x[1, 2], weight, bias), functional.linear(x[1, 2], weight, bias))
    assert linear.linear(x[:0], weight, bias).shape == (0, 9, 1024)
    assert len(called) == 1


@pytest.mark.parametrize("inputs", [40, 160])
def test_inputs_that_do_not_fit_are_refused_as_torch_does(inputs):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear.linear(torch.randn(32, inputs), torch.randn(1024, 80), None)
