"""Any nn.Module works: buffers, dropout, tied and frozen parameters, parametrisations."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.state import ClientStore, Group
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.layout import Layout
from fedquilt.round.federation import Federation
from fedquilt.round.merge import merge
from fedquilt.round.plan import plan


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Assigning(nn.Module):
    """Counts in an integer buffer and in one that is not saved, by assignment and in place."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int32))
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, x):
        if self.training:
            self.calls = self.calls + 1
            self.scale.mul_(0.9)
        return self.linear(x) * self.scale


def frozen():
    module = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    module[0].weight.requires_grad_(False)
    return module


MODULES = {
    "batch norm": lambda: nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
    "group norm": lambda: nn.Sequential(nn.Linear(8, 6), nn.GroupNorm(2, 6), nn.ReLU(), nn.Linear(6, 3)),
    "dropout": lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)),
    "tied": Tied,
    "frozen": frozen,
    "weight norm": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 6)), nn.ReLU(), nn.Linear(6, 3)),
    "spectral norm": lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 6)), nn.ReLU(), nn.Linear(6, 3)),
    "orthogonal": lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3)),
    "assigning": Assigning,
}


def make(name):
    torch.manual_seed(0)
    return MODULES[name]()


def trained(module, data, partition, engine, seed=1):
    method = fedquilt.fed_avg(
        lr=0.05, fraction=1.0, batch=7
    )  # everybody, at a low rate: the loss falls, whoever is drawn
    return fedquilt.train(module, data, partition, method, rounds=3, seed=seed, engine=engine)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_trains_to_the_same_bits_in_every_engine_and_is_not_changed(name, blobs, unbalanced):
    module = make(name)
    before = copy.deepcopy(module.state_dict())
    inline = trained(module, blobs, unbalanced, fedquilt.inline())
    again = trained(module, blobs, unbalanced, fedquilt.inline())
    parallel = trained(module, blobs, unbalanced, fedquilt.processes(workers=2))
    assert inline.digest == again.digest == parallel.digest
    assert inline.digest != trained(module, blobs, unbalanced, fedquilt.inline(), seed=2).digest
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert inline.history.loss[-1] < inline.history.loss[0]
    state = inline.model.state_dict()
    assert any(not torch.equal(before[key], state[key]) for key in before)


def test_buffers_are_averaged_apart_and_whole_numbers_take_the_maximum(blobs, unbalanced):
    module = make("batch norm")
    method = fedquilt.fed_avg_m(lr=0.1, fraction=1.0, batch=7, server_momentum=0.9)
    federation = Federation.of(module, blobs, unbalanced, method, seed=1)
    state = initial_state(method, federation.initial)
    with fedquilt.inline().open(federation) as session:
        planned = plan(method, Group(state), federation.population, 1)
        updates = list(session.run(planned, state, ClientStore()))
        after, _ = merge(method, federation.layout, state, planned, updates)
    weights = torch.tensor([update.weight for update in updates], dtype=torch.float64)
    buffers = torch.stack([update.buffers.double() for update in updates])
    expected = (weights[:, None] * buffers).sum(0) / weights.sum()
    assert torch.allclose(after.model.buffers.double(), expected, atol=1e-6)
    batches = [-(-int(size) // 7) for size in unbalanced.sizes]
    assert after.model.counters.tolist() == [max(batches)]


def test_frozen_parameters_stay_and_are_not_transmitted(blobs, unbalanced):
    module = make("frozen")
    result = trained(module, blobs, unbalanced, fedquilt.inline())
    layout = Layout.of(module)
    assert layout.size == sum(p.numel() for p in module.parameters()) - module[0].weight.numel()
    assert torch.equal(result.model[0].weight, module[0].weight)
    record = result.history.records[0]
    assert record["bytes_up"] == len(record["clients"]) * 4 * layout.size


def test_tied_parameters_appear_once_and_stay_tied(blobs, unbalanced):
    module = make("tied")
    result = trained(module, blobs, unbalanced, fedquilt.inline())
    assert Layout.of(module).size == 8 * 8 + 8 + 8 + 8 * 3 + 3
    assert result.model.first.weight is result.model.second.weight


def test_integer_buffers_that_a_module_assigns_are_carried(blobs, unbalanced):
    result = trained(make("assigning"), blobs, unbalanced, fedquilt.inline())
    assert result.model.calls.dtype == torch.int32
    assert int(result.model.calls) > 3
    assert result.model.scale.item() == 1.0


def test_a_gradient_shared_by_two_parameters_is_used_once_for_each(blobs, unbalanced):
    """With w1 + w2 in the forward pass autograd returns one tensor for both: a step must not scale it twice."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.zeros(8, 3))
            self.b = nn.Parameter(torch.zeros(8, 3))

        def forward(self, x):
            return x @ (self.a + self.b)

    result = fedquilt.train(
        Shared(),
        blobs,
        unbalanced,
        fedquilt.fed_avg(lr=0.1, fraction=1.0, momentum=0.5, weight_decay=0.01),
        rounds=2,
        engine=fedquilt.inline(),
    )
    assert torch.equal(result.model.a, result.model.b)
    assert result.model.a.abs().max() > 0


class Masked(nn.Module):
    """Carries a constant mask with −∞ in it, and a buffer of very large values that training changes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.register_buffer("large", torch.tensor([3e9, 1e-6]))

    def forward(self, x):
        if self.training:
            self.large[0] += 1e9
        return self.linear(x)


def test_buffers_may_hold_infinities_and_large_values_and_constants_stay(blobs, unbalanced):
    torch.manual_seed(0)
    result = trained(Masked(), blobs, unbalanced, fedquilt.inline())
    assert all(record["dropped"] == [] for record in result.history)
    assert result.model.mask.tolist() == [0.0, float("-inf")]
    assert result.model.large[0] > 4e9
    assert result.model.large[1] == torch.tensor(1e-6)


class Lazy(nn.Module):
    """Makes a constant on its first call and keeps it, outside of buffers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.scale = None

    def forward(self, x):
        if self.scale is None:
            self.scale = torch.full((8,), 0.5)
        return self.linear(x * self.scale)


def test_a_module_that_caches_a_tensor_in_its_first_call_trains(blobs, unbalanced):
    result = trained(Lazy(), blobs, unbalanced, fedquilt.inline())
    assert all(record["dropped"] == [] for record in result.history)


class Restless(nn.Module):
    """Drops out in evaluation too."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        return self.linear(nn.functional.dropout(x, 0.5))


def test_draws_in_evaluation_are_keyed_too(blobs, unbalanced):
    torch.manual_seed(0)
    module = Restless()
    engines = (fedquilt.inline(), fedquilt.inline(), fedquilt.processes(workers=2))
    losses = [trained(module, blobs, unbalanced, engine).history.loss for engine in engines]
    assert losses[0] == losses[1] == losses[2]


def test_models_that_cannot_be_trained_are_refused():
    complex_buffer = nn.Linear(2, 2)
    complex_buffer.register_buffer("phase", torch.zeros(1, dtype=torch.complex64))
    with pytest.raises(FedquiltError, match="complex numbers cannot be carried: phase"):
        Layout.of(complex_buffer)
    with pytest.raises(FedquiltError, match="no parameters to train"):
        Layout.of(nn.ReLU())
    with pytest.raises(FedquiltError, match="must be float32"):
        Layout.of(nn.Linear(2, 2).double())


class Convolutional(nn.Module):
    """A convolution whose output is flattened by `view`, as many models do, or by `flatten`."""

    def __init__(self, view):
        super().__init__()
        self.convolution = nn.Conv2d(1, 3, 3)
        self.linear = nn.Linear(6, 3)
        self.view = view

    def forward(self, x):
        hidden = torch.relu(self.convolution(x.reshape(len(x), 1, 4, 2).repeat(1, 1, 1, 2)))
        return self.linear(hidden.view(len(x), -1)[:, :6] if self.view else hidden.flatten(1)[:, :6])


@pytest.mark.parametrize("view", [True, False])
def test_convolutions_run_with_channels_last_where_the_module_can_do_with_it(view, blobs, unbalanced):
    torch.manual_seed(0)
    module = Convolutional(view)
    federation = Federation.of(module, blobs, unbalanced, fedquilt.fed_avg(), seed=1)
    weight = federation.replica.module.convolution.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)  # one channel in: both at once
    first = trained(module, blobs, unbalanced, fedquilt.inline())
    second = trained(module, blobs, unbalanced, fedquilt.processes(workers=2))
    assert first.digest == second.digest
    assert all(record["dropped"] == [] for record in first.history)
    assert first.model.convolution.weight.is_contiguous()


@pytest.mark.parametrize("view", [True, False])
def test_a_view_of_a_convolutions_output_keeps_channels_first(view):
    """Two channels in, so that the two layouts differ; the model still trains, with the same values to 1e-5."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(2, 3, 3, padding=1)
            self.linear = nn.Linear(48, 3)

        def forward(self, x):
            hidden = torch.tanh(self.convolution(x))
            return self.linear(hidden.view(len(x), -1) if view else hidden.flatten(1))

    torch.manual_seed(0)
    x, y = torch.randn(60, 2, 4, 4), torch.arange(60) % 3
    data = fedquilt.arrays(x[:40], y[:40], x[40:], y[40:])
    held = fedquilt.iid(y[:40], clients=4)
    module = Net()
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=float("inf"))
    federation = Federation.of(module, data, held, method, seed=1)
    weight = federation.replica.module.convolution.weight
    assert weight.is_contiguous(memory_format=torch.channels_last) is not view
    result = fedquilt.train(module, data, held, method, rounds=3, engine=fedquilt.inline())
    twin = copy.deepcopy(module)
    descent = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(3):
        descent.zero_grad()
        nn.functional.cross_entropy(twin(data.train.x), data.train.y).backward()
        descent.step()
    for ours, theirs in zip(result.model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
def test_the_old_weight_norm_is_refused_with_what_to_use(blobs, unbalanced):
    old = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.utils.weight_norm(nn.Linear(4, 3)))
    message = r"layer 2 uses torch\.nn\.utils\.weight_norm, .*; use torch\.nn\.utils\.parametrizations\.weight_norm"
    for more in ({}, {"trainable": 1}):
        with pytest.raises(FedquiltError, match=message):
            fedquilt.train(old, blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.inline(), **more)


def test_a_module_that_cannot_be_copied_is_refused(blobs, unbalanced):
    module = nn.Linear(8, 3)
    module.lock = threading.Lock()
    with pytest.raises(FedquiltError, match=r"the model cannot be copied to clients: TypeError: cannot pickle"):
        fedquilt.train(module, blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.inline())
