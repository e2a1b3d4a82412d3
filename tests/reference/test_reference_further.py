"""The methods of Wei 2022 and Ozdayi 2020 against scripts written from the papers alone, as in test_reference.py."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from reference import hsu_2019, ozdayi_2020, wei_2022
from reference.federation import (
    CLIENTS,
    INF,
    ROUNDS,
    SEED,
    SIZES,
    Fourier,
    cohorts,
    distance,
    named,
    network,
    plain,
    trained,
)

import fedquilt
from fedquilt.base.rng import generator
from fedquilt.partition import Partition

TOLERANCE = 1e-6
APART = 1e-3
FULL = [{k: [torch.arange(n)] * 2 for k, n in enumerate(SIZES)}] * ROUNDS  # E = 2, B = ∞


@pytest.mark.parametrize(
    ("tolerance", "patience", "max_epochs", "momentum"), [(0.1, 1, 60, 0.0), (0.1, 3, 60, 0.5), (0.0, 1, 7, 0.0)]
)
def test_one_shot(tolerance, patience, max_epochs, momentum):
    """Clients stop at different epochs, or all at the last; no epoch is so near the threshold that rounding decides."""
    expected, losses = wei_2022.one_shot(named(Fourier()), CLIENTS, 0.3, tolerance, patience, max_epochs, momentum)
    falls = [(a - b) / a for seen in losses for a, b in pairwise(seen)]
    assert min(abs(fall - tolerance) for fall in falls) > 1e-4
    stopped = {len(seen) for seen in losses}
    assert stopped == {max_epochs} if tolerance == 0 else max(stopped) < max_epochs and len(stopped) > 1
    method = fedquilt.one_shot(
        lr=0.3, batch=INF, tolerance=tolerance, patience=patience, max_epochs=max_epochs, momentum=momentum
    )
    assert distance(named(trained(Fourier(), method, rounds=1).model), expected) < TOLERANCE


def models_of_clients(result):
    """The model that each client ends with."""
    found = {}
    for group, model in zip(result.run.groups, result.models, strict=True):
        members = range(len(CLIENTS)) if group.clients is None else group.clients.tolist()
        found |= dict.fromkeys(members, named(model))
    return [found[k] for k in range(len(CLIENTS))]


@pytest.mark.parametrize("together", [1, 3])
def test_fl_hc(together):
    given = (named(Fourier()), CLIENTS, 0.1, 4)
    expected, labels = wei_2022.fl_hc(*given, together, ROUNDS - together, clusters=2)
    assert len(set(labels)) == 2
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=4, batch=INF)
    found = models_of_clients(trained(Fourier(), fedquilt.fl_hc(base, rounds=together, clusters=2)))
    for k in range(len(CLIENTS)):
        assert distance(found[k], expected[k]) < TOLERANCE
        assert distance(expected[k], wei_2022.fed_prox(*given, ROUNDS, 0.0)) > APART


def test_fl_hc_with_one_cluster_is_fed_avg():
    """§5.3: "when the number of clusters is 1, FL+HC is equal to FedAvg"."""
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=4, batch=INF)
    expected = wei_2022.fed_prox(named(Fourier()), CLIENTS, 0.1, 4, ROUNDS, 0.0)
    for model in models_of_clients(trained(Fourier(), fedquilt.fl_hc(base, rounds=2, clusters=1))):
        assert distance(model, expected) < TOLERANCE


def fourier():
    """The package's model of the random features in the test's own, and how to read it."""
    from fedquilt.models import random_fourier

    module, values = random_fourier(inputs=5, features=8, classes=3), named(Fourier())
    letters = {(8, 5): "omega", (8,): "b", (3, 8): "W"}
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(values[letters[tuple(p.shape)]].t())

    def read(trained_module):
        return {letters[tuple(p.shape)]: p.detach().double().t() for p in trained_module.parameters()}

    x = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 5))).float()
    assert torch.allclose(module(x), Fourier()(x), atol=1e-5)  # √2, without 1/√D: as printed
    return module, read


def mean_of_all(t, k, features):
    """The mean of the mixture Σ (n_k/n) p_k, as a sample of one: MMD sees nothing of Z but its mean."""
    return sum(len(held) / sum(SIZES) * held.mean(0) for held in features)[None]


def sampled(t, k, features):
    """100 samples of the mixture of diagonal Gaussians, by the package's keys."""
    slot = cohorts(fedquilt.fed_avg(fraction=1.0))[t - 1].index(k)
    rng = generator(SEED, "features", t, k, slot)
    component = rng.choice(len(SIZES), size=100, p=np.asarray(SIZES) / sum(SIZES))
    noise = torch.from_numpy(rng.standard_normal((100, 8), dtype=np.float32)).double()
    means = torch.stack([held.mean(0) for held in features])
    scales = torch.stack([held.std(0, unbiased=False) for held in features])
    return means[component] + scales[component] * noise


@pytest.mark.parametrize(("alpha", "beta"), [(0.02, 0.0), (0.0, 0.02), (0.02, 0.02)])
def test_fed_avg_r_without_mmd(alpha, beta):
    base = fedquilt.fed_avg(lr=0.05, fraction=1.0, epochs=4, batch=INF)
    given = (named(Fourier()), CLIENTS, 0.05, 4, ROUNDS)
    expected = wei_2022.fed_avg_r(*given, alpha, beta, 0.0, mean_of_all)
    module, read = fourier()
    found = read(trained(module, fedquilt.fed_avg_r(base, alpha=alpha, beta=beta, gamma=0.0)).model)
    assert distance(found, expected) < TOLERANCE
    assert distance(expected, wei_2022.fed_prox(*given, 0.0)) > APART


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_fed_avg_r_by_many_samples(squared, momentum):
    """With 200,000 samples the mean of Z is that of the mixture but for 0.003; the script itself then moves by 0.0004."""
    base = fedquilt.fed_avg(lr=0.05, fraction=1.0, epochs=4, batch=INF, momentum=momentum)
    given = (named(Fourier()), CLIENTS, 0.05, 4, ROUNDS, 0.02, 0.02)
    expected, without = (
        wei_2022.fed_avg_r(*given, gamma, mean_of_all, momentum, squared=squared) for gamma in (0.3, 0.0)
    )
    module, read = fourier()
    method = fedquilt.fed_avg_r(base, alpha=0.02, beta=0.02, gamma=0.3, squared=squared, samples=200_000)
    assert distance(read(trained(module, method).model), expected) < 2e-3
    assert distance(expected, without) > 5e-2


def test_fed_avg_r_by_the_same_samples():
    base = fedquilt.fed_avg(lr=0.05, fraction=1.0, epochs=4, batch=INF)
    given = (named(Fourier()), CLIENTS, 0.05, 4, ROUNDS, 0.02, 0.02, 0.3)
    expected = wei_2022.fed_avg_r(*given, sampled)
    module, read = fourier()
    method = fedquilt.fed_avg_r(base, alpha=0.02, beta=0.02, gamma=0.3, samples=100)
    assert distance(read(trained(module, method).model), expected) < TOLERANCE
    assert distance(expected, wei_2022.fed_avg_r(*given, mean_of_all)) > APART


def test_server_training():
    """§4.2: the server holds a share of all data, class by class, the clients the rest; an epoch after every round.

    Clients have classes of their own, as in the paper's NIID(5), and the examples of a class are all the same: whichever
    the server is given, the same remain.
    """
    centres = np.random.default_rng(5).normal(scale=0.7, size=(3, 5)).astype(np.float32)
    y = np.repeat([0, 1, 2], [8, 12, 20])
    data = fedquilt.arrays(centres[y], y, centres, np.arange(3))
    base = fedquilt.fed_avg_m(lr=0.1, fraction=1.0, epochs=2, batch=INF, server_momentum=0.5)
    method = fedquilt.server_training(base, share=0.25, epochs=2, lr=0.2, batch=INF)
    partition = Partition.of([np.arange(8), np.arange(8, 40)])
    result = fedquilt.train(network(), data, partition, method, rounds=ROUNDS, engine=fedquilt.inline(), seed=SEED)

    def examples(*counts):
        labels = torch.from_numpy(np.repeat([0, 1, 2], counts))
        return torch.from_numpy(centres).double()[labels], labels

    clients, server = [examples(6, 0, 0), examples(0, 9, 15)], examples(2, 3, 5)
    rounds = [{k: [torch.arange(len(labels))] * 2 for k, (_, labels) in enumerate(clients)}] * ROUNDS
    given = (plain(network()), clients, 0.1, INF, rounds)
    passes = [[torch.arange(10)] * 2] * ROUNDS
    expected = ozdayi_2020.train(*given, beta=0.5, server=server, server_lr=0.2, server_rounds=passes)
    assert distance(plain(result.model), expected) < TOLERANCE
    assert distance(expected, ozdayi_2020.train(*given, beta=0.5)) > APART


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("mask", ["step", "update"])
@pytest.mark.parametrize("threshold", [2, 4])
def test_sign_agreement(threshold, mask, absolute):
    base = fedquilt.fed_avg_m(lr=0.1, fraction=1.0, epochs=2, batch=INF, server_momentum=0.5, server_lr=0.9)
    method = fedquilt.sign_agreement(base, threshold, mask=mask, absolute=absolute)
    given = (plain(network()), CLIENTS, 0.1, INF, FULL)
    terms = {"beta": 0.5, "eta": 0.9, "threshold": threshold, "absolute": absolute}
    expected = ozdayi_2020.train(*given, masked=mask, **terms)
    assert distance(plain(trained(network(), method).model), expected) < TOLERANCE
    other = {"step": "update", "update": "step"}[mask]
    assert distance(expected, ozdayi_2020.train(*given, masked=other, **terms)) > APART
    assert distance(expected, hsu_2019.fed_avg_m(*given, 0.5, 0.9)) > APART


def test_sign_agreement_without_momentum():
    """Equation 4 itself: both masks are then the same."""
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=2, batch=INF)
    expected = ozdayi_2020.train(plain(network()), CLIENTS, 0.1, INF, FULL, threshold=2)
    for mask in ("step", "update"):
        method = fedquilt.sign_agreement(base, 2, mask=mask)
        assert distance(plain(trained(network(), method).model), expected) < TOLERANCE
