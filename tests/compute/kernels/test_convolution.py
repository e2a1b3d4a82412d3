"""The kernel of convolutions against PyTorch's in double precision, and in runs."""

import copy

import numpy as np
import pytest
import torch
from beside_torch import both, last
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

import fedquilt
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.convolution import CompiledConv2d
from fedquilt.compute.kernels.layers import OneChannelConv2d, kernels_of, with_kernels

pytestmark = pytest.mark.skipif(
    build.trouble("convolution") is not None, reason=f"no kernels here: {build.trouble('convolution')}"
)


def weights(count):
    return torch.linspace(-1, 2, count)


@settings(max_examples=60, deadline=None)
@given(
    images=st.integers(1, 5),
    channels=st.sampled_from([16, 32, 48]),
    filters=st.sampled_from([16, 32, 80]),
    side=st.sampled_from([3, 5]),
    height=st.integers(5, 14),
    width=st.integers(5, 14),
    padding=st.integers(0, 2),
    bias=st.booleans(),
    weights_last=st.booleans(),
    seed=st.integers(0, 5),
)
def test_outputs_and_gradients_are_those_of_double_precision(
    images, channels, filters, side, height, width, padding, bias, weights_last, seed
):
    """With tiles that reach over the edge, any padding, and weights in either order."""
    torch.manual_seed(seed)
    layer = nn.Conv2d(channels, filters, side, padding=padding, bias=bias)
    layer = layer.to(memory_format=torch.channels_last if weights_last else torch.contiguous_format)
    x = last(torch.randn(images, channels, height, width))
    assert type(with_kernels(layer, channels_last=True)) is CompiledConv2d
    _, ours = both(layer, x, weights, channels_last=True)
    exact, _ = both(layer.double(), x.double(), weights)
    assert ours[0].is_contiguous(memory_format=torch.channels_last)
    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=2e-5 * float(other.abs().max()))


@settings(max_examples=40, deadline=None)
@given(
    images=st.integers(1, 4),
    channels=st.integers(1, 4),
    filters=st.sampled_from([16, 48]),
    side=st.sampled_from([3, 5]),
    height=st.integers(5, 12),
    width=st.integers(5, 12),
    padding=st.integers(0, 2),
    seed=st.integers(0, 5),
)
def test_few_channels(images, channels, filters, side, height, width, padding, seed):
    torch.manual_seed(seed)
    layer = nn.Conv2d(channels, filters, side, padding=padding)
    x, found = last(torch.randn(images, channels, height, width)), []
    for each in (copy.deepcopy(layer).double(), with_kernels(layer, channels_last=True)):
        y = each(x.to(each.weight.dtype))
        of_y = weights(y.numel()).view_as(y).to(y.dtype)
        found.append(
            [y.detach().double(), *(g.double() for g in torch.autograd.grad(y, list(each.parameters()), of_y))]
        )
    for exact, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, exact, rtol=0, atol=5e-6 * float(exact.abs().max()))


@pytest.mark.parametrize(
    ("weight", "bias"),
    [((10, 16, 3, 3), (10,)), ((16, 16, 3, 5), (16,)), ((16, 8, 3, 3), (16,)), ((16, 16, 3, 3), (4,))],
)
def test_parameters_of_another_shape_are_torchs_to_take_or_refuse(weight, bias):
    """As after pruning, which leaves the layer's own numbers of channels as they were."""
    layer, x = nn.Conv2d(16, 16, 3), last(torch.randn(2, 16, 6, 6))
    given = {"weight": torch.randn(weight), "bias": torch.randn(bias)}
    outcomes = []
    for each in (layer, with_kernels(layer, channels_last=True)):
        try:
            outcomes.append(torch.func.functional_call(each, given, x))
        except RuntimeError as error:
            outcomes.append(str(error))
    if isinstance(outcomes[0], str):
        assert outcomes[0] == outcomes[1]
    else:
        assert torch.equal(*outcomes)


def test_an_image_does_not_depend_on_its_neighbours():
    layer = with_kernels(nn.Conv2d(16, 16, 5, padding=2), channels_last=True)
    x = last(torch.randn(7, 16, 9, 9))
    assert torch.equal(layer(x)[3:5], layer(x[3:5]))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(16, 16, 3, stride=2),
        nn.Conv2d(16, 16, 3, dilation=2),
        nn.Conv2d(16, 16, 3, groups=2),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(16, 16, 3, padding=(0, 1)),
        nn.Conv2d(16, 16, 3, padding=3),
        nn.Conv2d(16, 16, 3, padding=-1),
        nn.Conv2d(128, 256, 3),
        nn.Conv2d(16, 16, (3, 5)),
        nn.Conv2d(16, 16, 1),
        nn.Conv2d(16, 10, 3),
        nn.Conv2d(10, 16, 3),
        parametrizations.weight_norm(nn.Conv2d(16, 16, 3)),
    ],
)
def test_what_the_kernel_does_not_compute_is_torchs(layer):
    assert kernels_of(layer) == ()
    assert not isinstance(with_kernels(layer, channels_last=True), CompiledConv2d)


@pytest.mark.parametrize("padding", ["same", "valid", 1, (1, 1)])
def test_ways_to_write_the_padding(padding):
    layer = nn.Conv2d(16, 16, 3, padding=padding)
    plain, ours = both(layer, last(torch.randn(2, 16, 6, 6)), weights, channels_last=True)
    assert kernels_of(layer) == ("convolution",)
    assert plain[0].shape == ours[0].shape
    assert torch.allclose(plain[0], ours[0], atol=1e-4)


def test_parameters_that_are_views():
    plain, ours = nn.Conv2d(16, 32, 3), with_kernels(nn.Conv2d(16, 32, 3), channels_last=True)
    weight, bias = torch.randn(3, 3, 16, 64).permute(3, 2, 0, 1)[::2], torch.randn(1).expand(32)
    x, found = last(torch.randn(2, 16, 6, 6)), []
    for each in (plain, ours):
        each.weight, each.bias = nn.Parameter(weight), nn.Parameter(bias)
        y = each(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), [each.weight, each.bias])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5 * float(one.detach().abs().max()))


def test_other_inputs_are_torchs():
    layer = nn.Conv2d(16, 16, 3)
    ours = with_kernels(layer, channels_last=True)
    assert torch.equal(ours(x := torch.randn(16, 5, 5)), layer(x))
    assert ours(torch.empty(0, 16, 5, 5)).shape == (0, 16, 3, 3)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        ours(torch.randn(1, 16, 2, 2))
    with pytest.raises(RuntimeError, match="to have 16 channels"):
        ours(torch.randn(1, 32, 5, 5))
    assert ours.double()(torch.randn(1, 16, 5, 5).double()).dtype == torch.float64
    few = with_kernels(nn.Conv2d(3, 16, 3), channels_last=True)
    x = torch.randn(1, 3, 5, 5, requires_grad=True)
    assert torch.autograd.grad(few(x).sum(), x)[0].shape == x.shape


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_reach_their_tile_and_no_other_image(value):
    x = last(torch.zeros(2, 16, 8, 8))
    x[0, 0, 0, 0] = value
    layer = nn.Conv2d(16, 16, 3, padding=1)
    plain, y = (each(x).isfinite() for each in (layer, with_kernels(layer, channels_last=True)))
    assert (plain | ~y).all()  # wherever PyTorch's value is not finite, ours is not either
    assert y[0, :, 4:, 4:].all()
    assert y[1].all()


def test_channels_stay_first_where_a_model_needs_them():
    assert type(with_kernels(nn.Conv2d(1, 16, 3))) is nn.Conv2d
    assert type(with_kernels(nn.Conv2d(1, 10, 3), channels_last=True)) is OneChannelConv2d


class Smooth(nn.Sequential):
    """Few channels, many, and some classes; without a kink, so that the last bits stay the last bits."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 16, 5, padding=2),
            nn.Tanh(),
            nn.Conv2d(16, 16, 5, padding=2),
            nn.Tanh(),
            nn.Conv2d(16, 32, 3),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(32 * 6 * 6, 4),
        )


@pytest.mark.parametrize(
    "method", [fedquilt.fed_avg(lr=0.1, batch=5), fedquilt.fed_avg(lr=0.05, momentum=0.9, batch=7)]
)
def test_a_compiled_run_is_the_reference_and_itself(method):
    """To 1e-6 after a step and 1e-5 after five rounds; the same bits with two workers."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 1, 8, 8)).astype("float32"), np.arange(40) % 4
    torch.manual_seed(0)
    module, data = Smooth(), fedquilt.arrays(x, y, x, y)
    who = fedquilt.Partition.of(np.array_split(np.arange(40), 4))
    inline, kernels = fedquilt.inline(), fedquilt.inline(compute="compiled")

    def vector(engine, method, rounds):
        return fedquilt.train(module, data, who, method, rounds, engine=engine).state.vector

    one_step = fedquilt.fed_sgd(lr=0.1, fraction=1.0)
    assert (vector(inline, one_step, 1) - vector(kernels, one_step, 1)).abs().max() < 1e-6
    ours = vector(kernels, method, 5)
    assert (vector(inline, method, 5) - ours).abs().max() < 1e-5
    assert not torch.equal(vector(inline, method, 5), ours)  # it was the kernel that ran
    assert torch.equal(vector(fedquilt.processes(workers=2, compute="compiled"), method, 5), ours)
