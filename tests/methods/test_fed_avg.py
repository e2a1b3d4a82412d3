"""FedSGD and FedAvg (McMahan 2017) against closed forms and plain loops."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.parts.selection import cohort_size
from fedquilt.algorithm.state import Group
from fedquilt.round.plan import plan

INF = float("inf")


def run(module, data, partition, method, rounds, seed=1):
    return fedquilt.train(module, data, partition, method, rounds=rounds, seed=seed, engine=fedquilt.inline())


def distance(a, b):
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((p - q).detach().abs().max()) for p, q in pairs)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_with_one_full_batch_and_all_clients_it_is_gradient_descent_on_the_pooled_data(
    blobs, unbalanced, smooth, decay
):
    """Σ_k (n_k/n) ∇F_k = ∇f (McMahan 2017, §2), whatever the clients' sizes; the decay is the same for all."""
    method = fedquilt.fed_avg(lr=0.3, fraction=1.0, epochs=1, batch=INF, weight_decay=decay)
    result = run(smooth, blobs, unbalanced, method, rounds=20)
    twin = copy.deepcopy(smooth)
    descent = torch.optim.SGD(twin.parameters(), lr=0.3, weight_decay=decay)
    for _ in range(20):
        descent.zero_grad()
        functional.cross_entropy(twin(blobs.train.x), blobs.train.y).backward()
        descent.step()
    assert distance(result.model, twin) < 1e-6


def test_fed_sgd_is_fed_avg_with_one_full_batch_to_the_bit(blobs, unbalanced, smooth):
    sgd = run(smooth, blobs, unbalanced, fedquilt.fed_sgd(lr=0.2, fraction=0.5), rounds=5)
    avg = run(smooth, blobs, unbalanced, fedquilt.fed_avg(lr=0.2, fraction=0.5, epochs=1, batch=INF), rounds=5)
    assert sgd.digest == avg.digest


def test_a_batch_larger_than_a_client_is_its_whole_data_to_the_bit(blobs, unbalanced, smooth):
    large = run(smooth, blobs, unbalanced, fedquilt.fed_avg(batch=100, fraction=1.0), rounds=2)
    whole = run(smooth, blobs, unbalanced, fedquilt.fed_avg(batch=INF, fraction=1.0), rounds=2)
    assert large.digest == whole.digest


def test_several_epochs_are_those_of_a_plain_loop(blobs, unbalanced, smooth):
    """E = 3, B = ∞: each client takes three full-batch steps; the models are averaged with n_k / n."""
    method = fedquilt.fed_avg(lr=0.2, fraction=1.0, epochs=3, batch=INF)
    result = run(smooth, blobs, unbalanced, method, rounds=2)
    twin = copy.deepcopy(smooth)
    for _ in range(2):
        ends = []
        for k in range(len(unbalanced)):
            local = copy.deepcopy(twin)
            rows = torch.from_numpy(unbalanced.client(k))
            descent = torch.optim.SGD(local.parameters(), lr=0.2)
            for _ in range(3):
                descent.zero_grad()
                functional.cross_entropy(local(blobs.train.x[rows]), blobs.train.y[rows]).backward()
                descent.step()
            ends.append((len(rows) / 240, local))
        with torch.no_grad():
            for parts in zip(twin.parameters(), *(local.parameters() for _, local in ends), strict=True):
                parts[0].copy_(sum(w * p for (w, _), p in zip(ends, parts[1:], strict=True)))
    assert distance(result.model, twin) < 1e-6


def test_the_rate_decays_from_round_to_round(blobs, unbalanced, smooth):
    """On one full batch a round, decay γ makes round t step with lr·γ^(t−1)."""
    method = fedquilt.fed_avg(lr={"initial": 0.3, "factor": 0.5}, fraction=1.0, batch=INF)
    result = run(smooth, blobs, unbalanced, method, rounds=4)
    twin = copy.deepcopy(smooth)
    for t in range(4):
        loss = functional.cross_entropy(twin(blobs.train.x), blobs.train.y)
        gradients = torch.autograd.grad(loss, list(twin.parameters()))
        with torch.no_grad():
            for p, g in zip(twin.parameters(), gradients, strict=True):
                p.sub_(0.3 * 0.5**t * g)
    assert distance(result.model, twin) < 1e-6


def test_momentum_that_is_kept_lives_on_from_round_to_round(blobs, unbalanced, smooth):
    """With one client and one full batch a round, kept momentum is torch's SGD with momentum over the rounds."""
    pooled = unbalanced.pooled()
    kept = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=INF, momentum=0.9, keep_momentum=True)
    anew = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=INF, momentum=0.9)
    twin = copy.deepcopy(smooth)
    descent = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for _ in range(10):
        descent.zero_grad()
        functional.cross_entropy(twin(blobs.train.x), blobs.train.y).backward()
        descent.step()
    assert distance(run(smooth, blobs, pooled, kept, rounds=10).model, twin) < 1e-5
    assert distance(run(smooth, blobs, pooled, anew, rounds=10).model, twin) > 1e-2


def test_centralised_is_sgd_on_the_pooled_data(blobs, unbalanced, smooth):
    method = fedquilt.centralised(lr=0.1, batch=INF, momentum=0.9, weight_decay=0.01)
    result = run(smooth, blobs, unbalanced, method, rounds=10)
    twin = copy.deepcopy(smooth)
    descent = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(10):
        descent.zero_grad()
        functional.cross_entropy(twin(blobs.train.x), blobs.train.y).backward()
        descent.step()
    assert distance(result.model, twin) < 1e-5
    assert result.history.records[0]["examples"] == 240


def test_centralised_can_count_single_minibatches_as_rounds(blobs, unbalanced, smooth):
    result = run(smooth, blobs, unbalanced, fedquilt.centralised(lr=0.1, batch=25, steps=1), rounds=3)
    assert [record["steps"] for record in result.history] == [1, 1, 1]
    assert [record["examples"] for record in result.history] == [25, 25, 25]


@pytest.mark.parametrize(
    ("fraction", "clients", "expected"), [(0.0, 100, 1), (0.1, 100, 10), (0.29, 100, 29), (0.25, 10, 3), (1.0, 7, 7)]
)
def test_the_size_of_the_cohort(fraction, clients, expected):
    assert cohort_size(fraction, clients) == expected


def test_a_cohort_never_holds_a_client_twice_and_every_client_is_as_likely(federate, unbalanced):
    """4,000 cohorts of 3 out of 6: each client is in half of them, within five standard deviations."""
    federation = federate(fedquilt.fed_avg(fraction=0.5))
    state = initial_state(federation.algorithm, federation.initial)
    counts = np.zeros(6)
    for seed in range(4000):
        cohort = plan(federation.algorithm, Group(state), federation.population, seed).clients
        assert len(set(cohort.tolist())) == len(cohort) == 3
        counts[cohort] += 1
    assert np.abs(counts / 4000 - 0.5).max() < 5 * 0.5 / np.sqrt(4000)


def test_batches_of_an_epoch_cover_the_data_and_are_shuffled_anew():
    sample = fedquilt.fed_avg(epochs=3, batch=4).sample
    order, cuts = sample(10, np.random.default_rng(0))
    assert np.diff(cuts).tolist() == [4, 4, 2] * 3
    passes = order.reshape(3, 10)
    assert all(sorted(one.tolist()) == list(range(10)) for one in passes)
    assert passes[0].tolist() != passes[1].tolist()
    printed = fedquilt.fed_avg(epochs=3, batch=4, reshuffle=False).sample
    passes = printed(10, np.random.default_rng(0)).order.reshape(3, 10)
    assert passes[0].tolist() == passes[1].tolist() == passes[2].tolist()
