"""The kernel of LSTM layers against PyTorch's own layer in double precision, and in runs."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fedquilt
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.layers import with_kernels
from fedquilt.compute.kernels.lstm import lstm_layer
from fedquilt.compute.layout import Layout
from fedquilt.models.lstm import NextSymbolLSTM, PeepholeLSTM
from fedquilt.round.federation import Federation

pytestmark = pytest.mark.skipif(build.trouble("lstm") is not None, reason=f"no kernels here: {build.trouble('lstm')}")


def gradients(module, x, loss):
    x = x.clone().requires_grad_()
    value = loss(module(x))
    return value.detach(), torch.autograd.grad(value, [x, *module.parameters()])


def agree(ours, exact, limit):
    for one, other in zip(ours, exact, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).abs().max() <= limit * max(1.0, float(other.abs().max()))


@settings(max_examples=25, deadline=None)
@given(
    places=st.integers(1, 6),
    rows=st.integers(1, 27),
    inputs=st.integers(1, 20),
    hidden=st.integers(1, 40),
    layers=st.integers(1, 2),
    bias=st.booleans(),
    first=st.booleans(),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_values_and_gradients_are_those_of_torch(places, rows, inputs, hidden, layers, bias, first, scale):
    """Of outputs, last h and last c, for any number of rows and units, which need not fill registers."""
    torch.manual_seed(0)
    layer = nn.LSTM(inputs, hidden, layers, bias=bias, batch_first=first)
    x = scale * torch.randn((rows, places, inputs) if first else (places, rows, inputs))

    def loss(answer):
        outputs, (h, c) = answer
        return (outputs * outputs).sum() + (h * 0.5).sum() + (c * c * 0.25).sum()

    ours, mine = gradients(with_kernels(layer), x, loss)
    exact, theirs = gradients(copy.deepcopy(layer).double(), x.double(), loss)
    agree([ours, *mine], [exact, *theirs], 1e-5)


@pytest.mark.parametrize("peepholes", [False, True])
def test_peepholes(peepholes):
    torch.manual_seed(0)
    layer = PeepholeLSTM(5, 19, peepholes)
    x = torch.randn(13, 7, 5)
    ours, mine = gradients(with_kernels(layer), x, lambda y: (y * y).sum())
    exact, theirs = gradients(copy.deepcopy(layer).double(), x.double(), lambda y: (y * y).sum())
    agree([ours, *mine], [exact, *theirs], 1e-5)


def test_activations_keep_their_digits():
    """One unit without recurrence: h = σ(o) tanh(σ(i) tanh(g)), over ranges where a careless formula fails."""
    g = torch.cat([torch.linspace(-100, 100, 2_001), torch.logspace(-12, 0, 200), -torch.logspace(-12, 0, 200)])
    rates = torch.tensor([[0.0], [0.0], [1.0], [0.0]])
    h, c = lstm_layer(g[None, :, None], rates, torch.zeros(4, 1), torch.zeros(4))
    exact = 0.5 * torch.tanh(g.double())
    assert ((c[:, 0] - exact).abs() / exact.abs().clamp_min(1e-30)).max() < 5e-7
    assert (h[0, :, 0] - 0.5 * torch.tanh(exact)).abs().max() < 1e-7


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(bad):
    layer = with_kernels(nn.LSTM(2, 3))
    x = torch.zeros(4, 1, 2)
    x[1, 0, 0] = bad
    with torch.no_grad():
        layer.weight_ih_l0[:] = 0.0  # inf * 0 is NaN
    outputs, _ = layer(x)
    assert outputs[0].isfinite().all()
    assert outputs[1:].isnan().all()


def test_it_goes_backward_once():
    layer = with_kernels(nn.LSTM(2, 3))
    total = layer(torch.ones(4, 1, 2))[0].sum()
    torch.autograd.grad(total, list(layer.parameters()), retain_graph=True)
    with pytest.raises(RuntimeError, match="supports one backward pass"):
        torch.autograd.grad(total, list(layer.parameters()))


def lowered(layer, x):
    """What a layer answers under autocast: its outputs, or why this processor has none (without AVX-512, oneDNN's)."""
    with torch.autocast("cpu", torch.bfloat16):
        try:
            return layer(x)[0].tolist()
        except RuntimeError as error:
            return str(error)


def test_under_autocast_and_without_places_it_is_torchs():
    layer = nn.LSTM(2, 3)
    x = torch.randn(4, 5, 2)
    theirs = lowered(layer, x)
    assert lowered(with_kernels(layer), x) == theirs
    assert isinstance(theirs, list) or "could not create a primitive" in theirs
    for module in (layer, with_kernels(layer)):
        with pytest.raises(RuntimeError, match="larger than 0"):
            module(x[:0])


class Halved(PeepholeLSTM):
    """Computes something else than the layer that it derives from."""

    def forward(self, x):
        return super().forward(x) / 2


def test_a_layer_that_derives_from_one_with_a_kernel_computes_its_own():
    x = torch.randn(2, 4, 3)
    layer = Halved(3, 5)
    assert torch.equal(with_kernels(layer)(x), layer(x))


def test_other_ways_to_call_a_layer_are_torchs():
    layer = nn.LSTM(2, 3)
    ours = with_kernels(layer)
    start = (torch.ones(1, 1, 3), torch.ones(1, 1, 3))
    assert torch.equal(ours(torch.ones(4, 1, 2), start)[0], layer(torch.ones(4, 1, 2), start)[0])
    assert torch.equal(ours(torch.ones(4, 2))[0], layer(torch.ones(4, 2))[0])
    assert ours.double()(torch.ones(4, 1, 2).double())[0].dtype == torch.float64


def text():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 12, (60, 9))
    return fedquilt.arrays(x[:48], x[:48] % 5, x[48:], x[48:] % 5, classes=12)


@pytest.mark.parametrize("peepholes", [False, True])
def test_a_compiled_run_is_the_reference_and_itself(peepholes, tmp_path):
    """Over engines, workers and a resumption."""
    torch.manual_seed(0)
    module, data = NextSymbolLSTM(12, 4, 24, 2, peepholes, 2), text()
    who = fedquilt.Partition.of(np.array_split(np.arange(48), 5))
    method = fedquilt.fed_prox(fedquilt.fed_avg(lr=0.5, fraction=1.0, batch=4), mu=0.1)

    def go(engine, rounds=4, **options):
        return fedquilt.train(module, data, who, method, rounds, engine=engine, **options)

    plain, ours = go(fedquilt.inline()), go(fedquilt.inline(compute="compiled"))
    assert 0 < (plain.state.vector - ours.state.vector).abs().max() < 1e-5
    assert (plain.state.vector - Layout.of(module).read(module).vector).abs().max() > 1e-2
    for workers in (1, 2):
        assert go(fedquilt.processes(workers=workers, compute="compiled")).digest == ours.digest
    assert go(fedquilt.processes(workers=1, start="spawn", compute="compiled")).digest == ours.digest
    go(fedquilt.processes(workers=2, compute="compiled"), 2, out=tmp_path / "run")
    assert go(fedquilt.processes(workers=1, compute="auto"), 4, out=tmp_path / "run").digest == ours.digest
    assert type(ours.model.lstm) is type(module.lstm)


def test_auto_takes_kernels_however_short_the_run():
    module, data = NextSymbolLSTM(12, 4, 8, 1, False, 2), text()
    who = fedquilt.Partition.of(np.array_split(np.arange(48), 4))
    federation = Federation.of(module, data, who, fedquilt.fed_avg(fraction=1.0, batch=4), 0)
    assert fedquilt.inline(compute="auto").settled(federation, 1).compute == "compiled"
