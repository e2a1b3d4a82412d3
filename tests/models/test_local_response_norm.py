"""The kernel of local response normalisation against the formula in double precision, and in runs."""

import numpy as np
import pytest
import torch
from beside_torch import both, last, thrice
from hypothesis import given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.layers import kernels_of, with_kernels
from fedquilt.models import cifar_cnn_mcmahan
from fedquilt.models.local_response_norm import LocalResponseNorm

pytestmark = pytest.mark.skipif(
    build.trouble("response_norm") is not None, reason=f"no kernels here: {build.trouble('response_norm')}"
)


def weights(count):
    return torch.linspace(-1, 2, count)


@settings(max_examples=40, deadline=None)
@given(
    images=st.integers(1, 3),
    channels=st.sampled_from([16, 32, 64]),
    side=st.integers(1, 5),
    size=st.sampled_from([1, 3, 9, 33]),
    alpha=st.sampled_from([0.001, 1.0, 30.0]),
    seed=st.integers(0, 5),
)
def test_outputs_and_gradients_are_those_of_double_precision(images, channels, side, size, alpha, seed):
    torch.manual_seed(seed)
    x, layer = last(torch.randn(images, channels, side, side)), LocalResponseNorm(size, alpha)
    _, ours = both(layer, x, weights)
    exact, _ = both(layer, x.double(), weights)
    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_other_inputs_are_computed_by_torch():
    layer = LocalResponseNorm(3, 1.0)
    ours = with_kernels(layer)
    assert kernels_of(layer) == ("response_norm",)
    for x in (torch.randn(2, 16, 3, 3), last(torch.randn(2, 10, 3, 3)), last(torch.randn(2, 16, 3, 3)).double()):
        assert torch.equal(ours(x), layer(x))


def test_the_cifar_network_by_kernels_is_itself_with_two_workers_and_the_reference():
    assert kernels_of(cifar_cnn_mcmahan()) == ("convolution", "max_pool", "response_norm")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3, 24, 24)).astype("float32"), np.arange(8) % 10
    torch.manual_seed(0)
    module, data = cifar_cnn_mcmahan(), fedquilt.arrays(x, y, x, y)
    who, method = fedquilt.Partition.of([[0, 1, 2, 3], [4, 5, 6, 7]]), fedquilt.fed_sgd(lr=0.1, fraction=1.0)
    plain, ours, worked = thrice(module, data, who, method, 1)
    assert worked.digest == ours.digest != plain.digest
    assert (plain.state.vector - ours.state.vector).abs().max() < 1e-6
