"""FedAvgM (Hsu 2019, Hsu 2020) against torch's SGD on the averaged updates, and its limits."""

from __future__ import annotations

import pytest
import torch

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.state import ClientStore, Group
from fedquilt.round.merge import merge
from fedquilt.round.plan import plan

COMMON = {"lr": 0.1, "fraction": 0.5, "batch": 10}


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_it_is_torch_sgd_with_momentum_on_the_averaged_updates(federate, unbalanced, nesterov, rate):
    """With g = −Δ, torch's v ← βv + g, w ← w − γv (or γ(g + βv)) is Hsu's v ← βv + Δ, w ← w + γv."""
    method = fedquilt.fed_avg_m(**COMMON, server_momentum=0.9, nesterov=nesterov, server_lr=rate)
    plain = fedquilt.fed_avg(**COMMON)
    federation = federate(method)
    state = initial_state(method, federation.initial)
    weights = torch.nn.Parameter(federation.initial.vector.clone())
    optimiser = torch.optim.SGD([weights], lr=rate, momentum=0.9, nesterov=nesterov)
    with fedquilt.inline().open(federation) as session:
        for _ in range(6):
            planned = plan(method, Group(state), federation.population, 1)
            updates = list(session.run(planned, state, ClientStore()))
            averaged, _ = merge(plain, federation.layout, initial_state(plain, state.model), planned, updates)
            weights.grad = state.model.vector - averaged.model.vector
            optimiser.step()
            state, _ = merge(method, federation.layout, state, planned, updates)
            assert (weights.detach() - state.model.vector).abs().max() < 1e-5


def test_without_momentum_it_is_fed_avg_to_the_bit(blobs, unbalanced, smooth):
    def digest(method):
        return fedquilt.train(smooth, blobs, unbalanced, method, rounds=4, engine=fedquilt.inline()).digest

    assert digest(fedquilt.fed_avg_m(**COMMON, server_momentum=0.0)) == digest(fedquilt.fed_avg(**COMMON))
    assert digest(fedquilt.fed_avg_m(**COMMON, server_momentum=0.0, nesterov=True)) == digest(
        fedquilt.fed_avg(**COMMON)
    )
    assert digest(fedquilt.fed_avg_m(**COMMON, server_momentum=0.5)) != digest(fedquilt.fed_avg(**COMMON))


def test_momentum_never_touches_the_buffers_of_normalisation(blobs, unbalanced):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
    first = {}
    for momentum in (0.0, 0.9):
        method = fedquilt.fed_avg_m(lr=0.1, fraction=1.0, batch=7, server_momentum=momentum)
        first[momentum] = fedquilt.train(module, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline())
    assert torch.equal(first[0.0].model[1].running_mean, first[0.9].model[1].running_mean)


def test_the_server_rate_decays(federate, blobs, unbalanced, smooth):
    """With β = 0 and a server rate that decays to nothing the model stops moving."""
    method = fedquilt.fed_avg_m(**COMMON, server_momentum=0.0, server_lr={"initial": 1.0, "factor": 1e-6})
    two = fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=fedquilt.inline())
    three = fedquilt.train(smooth, blobs, unbalanced, method, rounds=3, engine=fedquilt.inline())
    assert (two.state.vector - three.state.vector).abs().max() < 1e-9
