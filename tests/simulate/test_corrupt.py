"""Corrupt clients (McMahan 2017, §1): who they are, what they send, and that the others are what they were."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.loss import Loss
from fedquilt.algorithm.parts.directions import clip_by_norm
from fedquilt.partition import Partition
from fedquilt.simulate.corrupt import corrupt
from fedquilt.simulate.simulation import corrupt_clients

INF = float("inf")
ONE_STEP = {"lr": 0.5, "fraction": 1.0, "batch": INF}
SEED = 1


def go(method, data, partition, module, *simulate, rounds=1, engine=None):
    engine = engine or fedquilt.inline()
    return fedquilt.train(module, data, partition, method, rounds=rounds, seed=SEED, engine=engine, simulate=simulate)


def vector(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def step(module, x, y):
    """One step of gradient descent on one client's data: −0.5·∇F_k."""
    twin = copy.deepcopy(module)
    functional.cross_entropy(twin(x), y).backward()
    return torch.cat([-0.5 * p.grad.flatten() for p in twin.parameters()])


def steps_by_client(module, data, partition, flipped=()):
    rows = [torch.from_numpy(partition.client(k)) for k in range(len(partition))]
    labels = [2 - data.train.y[r] if k in flipped else data.train.y[r] for k, r in enumerate(rows)]
    return [step(module, data.train.x[r], y) for r, y in zip(rows, labels, strict=True)]


def test_a_client_that_sends_nan_is_left_out_and_named(blobs, unbalanced, smooth):
    bad = sorted(corrupt_clients(0.34, 6, SEED))
    method = fedquilt.fed_avg(**ONE_STEP)
    with pytest.warns(RuntimeWarning, match=r"was left out of round 1 \(and 1 more\): sent NaN in its update"):
        result = go(method, blobs, unbalanced, smooth, corrupt(share=0.34, kind="nan"), rounds=2)
    for record in result.history:
        assert sorted(fault["client"] for fault in record["dropped"]) == bad
        assert {fault["reason"] for fault in record["dropped"]} == {"sent NaN in its update"}
        assert "absent" not in record
        assert sorted(record["clients"]) == sorted(set(range(6)) - set(bad))
    honest = Partition.of([unbalanced.client(k) for k in range(6) if k not in bad])
    other = go(fedquilt.fed_avg(**ONE_STEP), blobs, honest, smooth, rounds=2)
    assert (result.state.vector - other.state.vector).abs().max() < 1e-6


def test_flipped_signs_of_half_the_clients_cancel_the_other_half(blobs, smooth):
    """Four clients with the same 60 examples send Δ, Δ, −Δ, −Δ: the mean is nothing."""
    same = Partition.of([np.arange(60)] * 4)
    method = fedquilt.fed_avg(**ONE_STEP)
    result = go(method, blobs, same, smooth, corrupt(share=0.5))
    assert result.history.records[0]["applied"]
    assert (result.state.vector - vector(smooth)).abs().max() < 1e-9
    tripled = go(method, blobs, same, smooth, corrupt(share=0.5, strength=3.0))
    delta = step(smooth, blobs.train.x[:60], blobs.train.y[:60])
    assert (tripled.state.vector - (vector(smooth) - delta)).abs().max() < 1e-6


def test_flipped_labels_change_the_gradients_of_the_corrupt_clients_only(blobs, unbalanced, smooth):
    bad = corrupt_clients(0.34, 6, SEED)
    simulation = corrupt(share=0.34, kind="label_flip")
    result = go(fedquilt.fed_avg(**ONE_STEP), blobs, unbalanced, smooth, simulation)
    weights = unbalanced.sizes / unbalanced.sizes.sum()
    deltas = steps_by_client(smooth, blobs, unbalanced, flipped=bad)
    expected = vector(smooth) + sum(float(w) * d for w, d in zip(weights, deltas, strict=True))
    honest = vector(smooth) + sum(
        float(w) * d for w, d in zip(weights, steps_by_client(smooth, blobs, unbalanced), strict=True)
    )
    assert (result.state.vector - expected).abs().max() < 1e-6
    assert (expected - honest).abs().max() > 1e-3


def test_fed_ir_weighs_the_labels_that_a_corrupt_client_trains_on(blobs, smooth):
    """A client with class 0 alone, flipped to class 2: p(2) / q(2) normalised is 1, not the weight of an absent class."""
    zeros = np.flatnonzero(blobs.train.y.numpy() == 0)
    others = np.flatnonzero(blobs.train.y.numpy() != 0)
    bad = next(iter(corrupt_clients(0.5, 2, SEED)))
    clients = [zeros, others] if bad == 0 else [others, zeros]
    held = Partition.of(clients)
    seen = []
    for wrap in (lambda base: base, lambda base: fedquilt.fed_ir(base, target="uniform")):
        method = wrap(fedquilt.fed_avg(**ONE_STEP))
        seen.append(go(method, blobs, held, smooth, corrupt(share=0.5, kind="label_flip")).state.vector)
    assert (seen[0] - seen[1]).abs().max() < 1e-6


def test_noise_is_standard_normal_times_the_strength_and_differs_from_client_to_client(blobs, smooth):
    """Two of four equal clients send Δ + 2·N(0, 1): the mean's standard deviation is 2·√2 / 4; bounds of five of theirs."""
    same = Partition.of([np.arange(60)] * 4)
    plain = go(fedquilt.fed_avg(**ONE_STEP), blobs, same, smooth).state.vector
    noisy = corrupt(share=0.5, kind="noise", strength=2.0)
    noise = (go(fedquilt.fed_avg(**ONE_STEP), blobs, same, smooth, noisy).state.vector - plain) / (2 * 2**0.5 / 4)
    assert abs(float(noise.mean())) < 5 / len(noise) ** 0.5
    assert abs(float(noise.var()) - 1) < 5 * (2 / len(noise)) ** 0.5


def test_stacked_noise_is_drawn_twice(blobs, smooth):
    """The second draw is uncorrelated with the first: within five standard deviations over the model's 75 coordinates."""
    same = Partition.of([np.arange(60)] * 2)
    base = fedquilt.fed_avg(**ONE_STEP)
    plain = go(base, blobs, same, smooth).state.vector
    noisy = corrupt(share=0.5, kind="noise")
    first, both = (2 * (go(base, blobs, same, smooth, *[noisy] * times).state.vector - plain) for times in (1, 2))
    second = both - first
    correlation = float((first * second).mean() / (first.std() * second.std()))
    assert abs(correlation) < 5 / len(first) ** 0.5


def test_stacked_corruptions_hit_nested_sets(blobs, unbalanced, smooth):
    few, many = corrupt_clients(0.2, 6, SEED), corrupt_clients(0.5, 6, SEED)
    assert (len(few), len(many)) == (1, 3)
    assert few < many
    stacked = corrupt(share=0.5), corrupt(share=0.2, strength=2.0)
    factors = [2.0 if k in few else -1.0 if k in many else 1.0 for k in range(6)]
    weights = unbalanced.sizes / unbalanced.sizes.sum()
    deltas = steps_by_client(smooth, blobs, unbalanced)
    expected = vector(smooth) + sum(float(w) * f * d for w, f, d in zip(weights, factors, deltas, strict=True))
    result = go(fedquilt.fed_avg(**ONE_STEP), blobs, unbalanced, smooth, *stacked)
    assert (result.state.vector - expected).abs().max() < 1e-6


def test_it_composes_with_server_momentum(blobs, unbalanced, smooth):
    """Momentum v ← βv + Δ̄ with the corrupted mean Δ̄, by hand for two rounds of one full-batch step."""
    bad = corrupt_clients(0.34, 6, SEED)
    method, simulation = fedquilt.fed_avg_m(**ONE_STEP, server_momentum=0.9), corrupt(share=0.34)
    result = go(method, blobs, unbalanced, smooth, simulation, rounds=2)
    twin, velocity = copy.deepcopy(smooth), 0.0
    weights = unbalanced.sizes / unbalanced.sizes.sum()
    for _ in range(2):
        deltas = steps_by_client(twin, blobs, unbalanced)
        mean = sum(float(w) * d * (-1 if k in bad else 1) for k, (w, d) in enumerate(zip(weights, deltas, strict=True)))
        velocity = 0.9 * velocity + mean
        torch.nn.utils.vector_to_parameters(vector(twin) + velocity, twin.parameters())
    assert (result.state.vector - vector(twin)).abs().max() < 1e-6
    parallel = go(method, blobs, unbalanced, smooth, simulation, rounds=2, engine=fedquilt.processes(workers=2))
    assert parallel.digest == result.digest


def _half_square(outputs, targets):
    return (outputs[:, 0] - targets) ** 2 / 2, None


@pytest.mark.parametrize("kind", ["sign_flip", "label_flip"])
def test_the_runs_seed_says_which_clients_are_corrupt(kind):
    """40 clients, 20 of them corrupt: two seeds draw the same 20 with a chance of 1 in C(40, 20), about 10¹¹.

    Client k is the coordinate k: x_k = e_k and y_k = 2, so that from w = 0 it sends 2·e_k, and w_k = 2/40 after a round.
    With its sign flipped w_k = −2/40; with its label flipped, 2 − 2 = 0, it is 0.
    """
    data = fedquilt.arrays(np.eye(40), np.full(40, 2), np.eye(40), np.full(40, 2), name="coordinates")
    method = replace(fedquilt.fed_avg(**ONE_STEP | {"lr": 1.0}), loss=Loss(_half_square))
    options = {"engine": fedquilt.inline(), "simulate": [corrupt(share=0.5, kind=kind)]}
    wrong, found = {"sign_flip": -2 / 40, "label_flip": 0.0}[kind], []
    for seed in (1, 2):
        module = torch.nn.Linear(40, 1, bias=False)
        torch.nn.init.zeros_(module.weight)
        held = Partition.by_sizes(np.arange(40), np.ones(40, dtype=np.int64))
        w = fedquilt.train(module, data, held, method, 1, seed=seed, **options).state.vector
        bad = torch.isclose(w, torch.tensor(wrong))
        assert torch.allclose(w[~bad], torch.tensor(2 / 40))
        found.append(set(torch.nonzero(bad).flatten().tolist()))
    assert [len(clients) for clients in found] == [20, 20]
    assert found[0] != found[1]


def test_what_is_corrupted_is_what_would_be_sent(federate, blobs, unbalanced, smooth):
    """Updates are clipped to 0.01 and then, at corrupt clients, flipped and grown tenfold: those have the norm 0.1."""
    limit = 0.01
    method = replace(fedquilt.fed_avg(**ONE_STEP), upload=clip_by_norm(limit))
    simulation = corrupt(share=0.5, strength=10.0)
    bad = corrupt_clients(0.5, 6, SEED)
    federation = federate(method, seed=SEED, simulation=simulation)
    state, mean = initial_state(method, federation.initial), 0.0
    for k, honest in enumerate(steps_by_client(smooth, blobs, unbalanced)):
        assert torch.linalg.vector_norm(honest) > limit
        sent = federation.site.run_client(state, 1, k, k, None).delta
        expected = honest / torch.linalg.vector_norm(honest) * limit * (-10 if k in bad else 1)
        assert torch.linalg.vector_norm(sent).item() == pytest.approx(10 * limit if k in bad else limit, rel=1e-5)
        assert torch.allclose(sent, expected, atol=1e-6)
        mean = mean + expected * len(unbalanced.client(k)) / 240
    moved = go(method, blobs, unbalanced, smooth, simulation).state.vector - vector(smooth)
    assert torch.allclose(moved, mean, atol=1e-6)
