"""The kernel of max pooling against PyTorch's, to the bit, and in runs."""

import numpy as np
import pytest
import torch
from beside_torch import both, last, thrice
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fedquilt
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.layers import with_kernels
from fedquilt.round import views
from fedquilt.round.federation import Federation

pytestmark = pytest.mark.skipif(
    build.trouble("max_pool") is not None, reason=f"no kernels here: {build.trouble('max_pool')}"
)


def weights(count):
    return torch.arange(1.0, count + 1)  # whole numbers: their sums are exact in any order


def same(a, b):
    return (
        a.shape == b.shape and torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
    )


@settings(max_examples=40, deadline=None)
@given(
    images=st.integers(1, 3),
    channels=st.integers(1, 35),
    height=st.integers(3, 9),
    width=st.integers(3, 9),
    size=st.sampled_from([1, 2, 3, (2, 3)]),
    stride=st.sampled_from([None, 1, 2, 3, (1, 2)]),
    ceil=st.booleans(),
    few=st.booleans(),
    seed=st.integers(0, 5),
)
def test_outputs_and_gradients_are_those_of_torch_to_the_bit(
    images, channels, height, width, size, stride, ceil, few, seed
):
    """With windows that overlap, leave something out or reach over the edge, equal values, infinities and NaN."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(images, channels, height, width, generator=rng)
    if few:
        x = x.round()  # many equal values
        x[torch.rand(x.shape, generator=rng) < 0.1] = float("nan")
        x[torch.rand(x.shape, generator=rng) < 0.1] = -float("inf")
    plain, ours = both(nn.MaxPool2d(size, stride, ceil_mode=ceil), last(x), weights)
    for one, other in zip(plain, ours, strict=True):
        assert same(one, other)


def test_other_inputs_are_torchs():
    layer = with_kernels(nn.MaxPool2d(2))
    x = torch.randn(3, 4, 6)
    assert torch.equal(layer(x), nn.MaxPool2d(2)(x))
    assert layer(last(torch.randn(1, 3, 4, 4).double())).dtype == torch.float64
    with pytest.raises(RuntimeError, match="too small"):
        layer(last(torch.randn(1, 3, 1, 1)))


def test_another_default_type():
    x = last(torch.randn(2, 3, 6, 6))
    torch.set_default_dtype(torch.float64)
    try:
        (plain, ours) = both(nn.MaxPool2d(2), x, weights)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(same(one, other) and one.dtype == other.dtype for one, other in zip(plain, ours, strict=True))


LISTS = nn.MaxPool2d([2, 2], padding=[0, 0], dilation=[1, 1])  # type: ignore[arg-type]


@pytest.mark.parametrize("layer", [LISTS, nn.MaxPool2d((2,))])
def test_other_ways_to_write_sizes(layer):
    plain, ours = both(layer, last(torch.randn(2, 3, 6, 6)), weights)
    assert same(plain[0], ours[0])
    assert with_kernels(layer).kernel == "max_pool"


def images(channels, side, count=40):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, channels, side, side)).astype("float32")
    return fedquilt.arrays(x, np.arange(count) % 4, x, np.arange(count) % 4)


class Small(nn.Sequential):
    """Two convolutions, overlapping windows, and some classes."""

    def __init__(self, channels):
        super().__init__(
            nn.Conv2d(channels, 5, 3),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.Tanh(),
            nn.Conv2d(5, 6, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(24, 4),
        )


@pytest.mark.parametrize("channels", [1, 3])
def test_a_compiled_run_is_the_reference_and_itself(channels):
    """With several channels to the bit: pooling rounds nothing."""
    torch.manual_seed(0)
    module, data = Small(channels), images(channels, 10)
    who = fedquilt.Partition.of(np.array_split(np.arange(40), 4))
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=5)
    plain, ours, worked = thrice(module, data, who, method, 3)
    assert worked.digest == ours.digest
    assert (plain.state.vector - ours.state.vector).abs().max() < 1e-5
    assert channels == 1 or plain.digest == ours.digest


def test_channels_come_last_after_a_convolution_of_one_channel():
    federation = views.with_kernels(
        Federation.of(Small(1), images(1, 10), fedquilt.Partition.of([list(range(40))]), fedquilt.fed_avg(), 0)
    )
    x = torch.zeros(2, 1, 10, 10)
    first = federation.replica.module[0](x)
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(first, nn.Conv2d.forward(federation.replica.module[0], x), atol=1e-6)


class Viewing(nn.Module):
    """Takes a view of a convolution's output, which is refused where channels come last."""

    def __init__(self):
        super().__init__()
        self.see, self.pool, self.judge = nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.Linear(48, 4)

    def forward(self, x):
        seen = self.see(x)
        return self.judge(self.pool(seen.view(len(x), 3, 8, 8)).view(len(x), -1))


def test_a_model_that_needs_channels_first_keeps_them():
    who = fedquilt.Partition.of([list(range(20)), list(range(20, 40))])
    go = [
        fedquilt.train(Viewing(), images(1, 10), who, fedquilt.fed_avg(fraction=1.0), 1, engine=engine)
        for engine in (fedquilt.inline(), fedquilt.inline(compute="compiled"))
    ]
    assert not any(record["dropped"] for result in go for record in result.history.records)
