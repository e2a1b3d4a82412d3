"""The kernel of ReLUs with biases, a scale and a shortcut against plain operations: to the bit, but for sums."""

import numpy as np
import pytest
import torch
from beside_torch import last, thrice
from hypothesis import given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.rectified import KERNEL, rectified, rectified_by_kernel
from fedquilt.models import resnet20_fixup

pytestmark = pytest.mark.skipif(build.trouble(KERNEL) is not None, reason=f"no kernels here: {build.trouble(KERNEL)}")


def results(function, x, arguments):
    needed = {"x": x} | arguments
    needed = {
        name: value.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        for name, value in needed.items()
    }
    y = function(**needed)
    gradients = torch.autograd.grad(y, list(needed.values()), torch.linspace(-1, 2, y.numel()).view_as(y).to(y.dtype))
    return y.detach(), dict(zip(needed, gradients, strict=True))


@settings(max_examples=60, deadline=None)
@given(
    images=st.integers(1, 3),
    channels=st.integers(1, 20),
    side=st.integers(1, 12),
    given=st.sets(st.sampled_from(["after", "scale", "shortcut"])),
    channels_last=st.booleans(),
    seed=st.integers(0, 5),
)
def test_values_to_the_bit_and_sums_as_in_double_precision(images, channels, side, given, channels_last, seed):
    torch.manual_seed(seed)
    x, shortcut = torch.randn(2, images, channels, side, side)
    layout = last if channels_last else torch.Tensor.contiguous
    every = {"after": torch.randn(1), "scale": torch.randn(1), "shortcut": layout(shortcut)}
    arguments = {"before": torch.randn(1)} | {name: every[name] for name in sorted(given)}
    plain, ours = (results(function, layout(x), arguments) for function in (rectified, rectified_by_kernel))
    assert torch.equal(plain[0], ours[0])
    for name in {"x", "shortcut"} & plain[1].keys():
        assert torch.equal(plain[1][name], ours[1][name])
    d = torch.linspace(-1, 2, x.numel()).view_as(x)
    z = layout(x) * arguments.get("scale", 1.0) + arguments["before"] + arguments.get("shortcut", 0.0)
    kept = torch.where(z > 0, d, 0.0).double()
    exact = {"before": kept.sum(), "after": d.double().sum(), "scale": (kept * x).sum()}
    for name in exact.keys() & plain[1].keys():
        torch.testing.assert_close(
            ours[1][name].double(), exact[name].reshape(1), rtol=1e-5, atol=1e-5 * x.numel() ** 0.5
        )


def test_what_is_not_a_number_stays_none_and_infinity_infinite():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    y = rectified_by_kernel(x, torch.zeros(1))
    assert y.isnan().tolist() == [True, False, False, False]
    assert y[1:].tolist() == [float("inf"), 0.0, 0.0]


def test_other_tensors_are_computed_by_plain_operations():
    x = torch.randn(2, 3, 4, 4)
    each = torch.randn(3, 1, 1)
    assert torch.equal(rectified_by_kernel(x, each), rectified(x, each))
    assert torch.equal(rectified_by_kernel(x, each[0, 0], shortcut=last(x)), rectified(x, each[0, 0], shortcut=last(x)))
    assert torch.equal(rectified_by_kernel(x[..., ::2], each[0, 0]), rectified(x[..., ::2], each[0, 0]))
    assert rectified_by_kernel(x.double(), each[0, 0].double()).dtype == torch.float64


def test_a_fixup_network_by_kernels_is_the_reference_and_itself_with_two_workers():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3, 16, 16)).astype("float32"), np.arange(8) % 10
    torch.manual_seed(0)
    module, data = resnet20_fixup(), fedquilt.arrays(x, y, x, y)
    who, method = fedquilt.Partition.of([[0, 1, 2, 3], [4, 5, 6, 7]]), fedquilt.fed_sgd(lr=0.1, fraction=1.0)
    plain, ours, worked = thrice(module, data, who, method, 2)
    assert worked.digest == ours.digest != plain.digest
    assert (plain.state.vector - ours.state.vector).abs().max() < 1e-6
