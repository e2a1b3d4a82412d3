"""Layers whose steps need no gradient, against the usual way: the same step but for the last bits, or to the bit."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedquilt
from fedquilt.compute.kernels import build, descending
from fedquilt.compute.kernels.descending import DescendingEmbedding, DescendingLinear, OwnSteps, taking_own_steps
from fedquilt.compute.kernels.layers import with_kernels
from fedquilt.engines import inline

RATE = 0.5
WORDS, WIDTH = 9, 4


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    monkeypatch.setattr(descending, "LARGE", 1)


class Words(nn.Module):
    """Words, embedded, read by an LSTM, and scored."""

    def __init__(self):
        super().__init__()
        self.embed, self.predict = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.lstm, self.mix = nn.LSTM(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, WIDTH, bias=False)

    def read(self, x):
        return self.mix(self.lstm(self.embed(x))[0])

    def forward(self, x):
        return self.predict(self.read(x))


class Twice(Words):
    """A layer is called twice."""

    def forward(self, x):
        return self.predict(self.mix(self.read(x)))


class Tied(Words):
    """Two layers share a weight."""

    def __init__(self):
        super().__init__()
        self.predict.weight = self.embed.weight


class TiedToOther(Tied):
    """A layer shares its weight with one that takes no steps of its own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.predict.weight = self.embed.weight


class UsedElsewhere(Words):
    """The weight of a layer is used by itself, before the layer and after it."""

    def forward(self, x):
        seen = functional.linear(self.read(x), self.mix.weight.T)
        return self.predict(self.mix(seen)) + functional.linear(seen, self.embed.weight)


class OneRow(Words):
    """A layer is given a vector instead of rows."""

    def forward(self, x):
        return self.predict(self.read(x)) + self.predict(self.embed.weight[0])


class InnerGradient(Words):
    """A gradient is taken within the forward pass."""

    def forward(self, x):
        seen = self.read(x)
        with torch.enable_grad():
            probe = seen.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.predict(probe).square().sum(), probe)
        return self.predict(seen + 0.01 * slope)


def data():
    words = np.random.default_rng(0).integers(0, WORDS, size=(30, 6))
    return fedquilt.arrays(words[:, :5], words[:, 1:], words[:4, :5], words[:4, 1:])


def trained(module, method, compute):
    clients = fedquilt.iid(np.zeros(30, dtype=np.int64), clients=3, seed=1)
    engine = inline(compute=compute)
    result = fedquilt.train(copy.deepcopy(module), data(), clients, method, rounds=2, seed=1, engine=engine)
    return values(result.model)


def values(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.skipif(build.trouble("lstm") is not None, reason="no kernels here")
@pytest.mark.parametrize("kind", [Words, Twice, Tied, TiedToOther, UsedElsewhere, OneRow, InnerGradient])
def test_runs_agree_with_eager_ones(kind, monkeypatch):
    torch.manual_seed(0)
    module, taken, take = kind(), [], OwnSteps.take
    monkeypatch.setattr(OwnSteps, "take", lambda steps: taken.append(take(steps)) or taken[-1])
    method = fedquilt.fed_avg(lr=0.3, fraction=1.0, epochs=1, batch=4)
    eager = trained(module, method, "eager")
    assert not taken
    ours = trained(module, method, "compiled")
    assert len(taken) == 2 * 3 * 3  # rounds, clients, steps
    assert all(taken)
    assert (eager - values(module)).abs().max() > 1e-2
    assert (eager - ours).abs().max() < 1e-5


@pytest.mark.skipif(build.trouble("lstm") is not None, reason="no kernels here")
@pytest.mark.parametrize(
    "method",
    [
        fedquilt.fed_avg(lr=0.3, fraction=1.0, batch=4, momentum=0.9),
        fedquilt.fed_avg(lr=0.3, fraction=1.0, batch=4, weight_decay=0.1),
        fedquilt.methods.fed_prox(fedquilt.fed_avg(lr=0.3, fraction=1.0, batch=4), mu=0.1),
    ],
)
def test_where_a_step_is_more_than_the_gradient_nothing_changes(method, monkeypatch):
    """Momentum, decay and a proximal term need the gradient: to the bit as with layers that take no steps."""
    torch.manual_seed(0)
    module = Words()
    ours = trained(module, method, "compiled")
    monkeypatch.setattr(descending, "LARGE", 2**40)
    assert torch.equal(ours, trained(module, method, "compiled"))


def stepped(module, x, rate):
    """Take a step on the sum of squared outputs; return the gradients that were written, and whose step was taken."""
    names, parameters = zip(*((n, p) for n, p in module.named_parameters() if p.requires_grad), strict=True)
    with taking_own_steps(module, rate) as steps:
        found = torch.autograd.grad(module(x).square().sum(), parameters, allow_unused=True)
        taken = set() if steps is None else steps.take()
    by_name = dict(zip(names, found, strict=True))
    return by_name, {name for name, p in zip(names, parameters, strict=True) if id(p) in taken}


def test_a_linear_layer_steps_where_its_gradient_points():
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, 4.0], [0.5, 0.0, -1.0]]))
        layer.bias.copy_(torch.tensor([1.0, -1.0]))
    ours = with_kernels(layer)
    assert type(ours) is DescendingLinear
    gradients, taken = stepped(ours, torch.tensor([[1.0, 0.0, -1.0]]), RATE)
    # Outputs are (1 − 4 + 1, 0.5 + 1 − 1) = (−2, 0.5), their gradients twice that: (−4, 1).
    assert gradients == {"weight": None, "bias": None}
    assert taken == {"weight", "bias"}
    assert ours.weight.tolist() == [[3.0, 2.0, 2.0], [0.0, 0.0, -0.5]]
    assert ours.bias.tolist() == [3.0, -1.5]


def test_an_embedding_steps_at_the_rows_that_occur():
    layer = nn.Embedding(4, 2)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    ours = with_kernels(layer)
    assert type(ours) is DescendingEmbedding
    _, taken = stepped(ours, torch.tensor([[0, 2], [2, 2]]), 0.125)
    assert taken == {"weight"}
    # The gradient of a row is 2 for every time that it occurs: 1 − 0.125·2 and 1 − 0.125·6.
    assert ours.weight.tolist() == [[0.75, 0.75], [1.0, 1.0], [0.25, 0.25], [1.0, 1.0]]


def test_frozen_weights_stay():
    ours = with_kernels(nn.Linear(3, 2))
    before = ours.weight.requires_grad_(False).clone()
    _, taken = stepped(ours, torch.randn(4, 3), RATE)
    assert taken == {"bias"}
    assert torch.equal(ours.weight, before)


def test_without_a_rate_layers_are_torchs():
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    theirs, _ = stepped(layer, x, None)
    mine, taken = stepped(with_kernels(layer), x, None)
    assert not taken
    assert all(torch.equal(theirs[name], mine[name]) for name in theirs)


@pytest.mark.parametrize(
    "layer",
    [nn.Embedding(9, 4, padding_idx=0), nn.Embedding(9, 4, max_norm=1.0), nn.Embedding(9, 4, sparse=True)],
)
def test_other_embeddings_stay_as_they_are(layer):
    assert type(with_kernels(layer)) is nn.Embedding
