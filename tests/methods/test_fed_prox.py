"""FedProx (Li 2020) against an explicit penalty."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch.nn import functional

import fedquilt

INF = float("inf")


def test_it_minimises_the_loss_plus_half_mu_times_the_squared_distance(blobs, unbalanced, smooth):
    """Three full-batch steps a client on F_k(w) + (μ/2)·‖w − w_t‖², then the mean with n_k / n."""
    mu, lr = 0.7, 0.2
    method = fedquilt.fed_prox(fedquilt.fed_avg(lr=lr, fraction=1.0, epochs=3, batch=INF), mu=mu)
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline())
    start = [p.detach().clone() for p in smooth.parameters()]
    total = [torch.zeros_like(p) for p in start]
    for k in range(len(unbalanced)):
        local, rows = copy.deepcopy(smooth), torch.from_numpy(unbalanced.client(k))
        for _ in range(3):
            distance = sum(((p - s) ** 2).sum() for p, s in zip(local.parameters(), start, strict=True))
            loss = functional.cross_entropy(local(blobs.train.x[rows]), blobs.train.y[rows]) + mu / 2 * distance
            gradients = torch.autograd.grad(loss, list(local.parameters()))
            with torch.no_grad():
                for p, g in zip(local.parameters(), gradients, strict=True):
                    p.sub_(lr * g)
        for sum_, p in zip(total, local.parameters(), strict=True):
            sum_.add_(p.detach() * len(rows) / 240)
    for expected, found in zip(total, result.model.parameters(), strict=True):
        assert torch.allclose(expected, found, atol=1e-6)


def test_two_rounds_by_hand(quadratics):
    """On F = a(w − b)²/2 a step is w ← w − η(a(w − b) + μ(w − w_t)).

    It shrinks the distance to (ab + μw_t)/(a + μ) by ρ = 1 − η(a + μ): S of them from w_t end at

        w_t + (1 − ρ^S)·a(b − w_t)/(a + μ).

    η = 1/4, μ = 1. Client 1: a = 1, b = 4, three steps, ρ = 1/2: w_t + 7/16·(4 − w_t). Client 2: a = 4, b = 1, one step,
    ρ = −1/4: w_t + (1 − w_t) = 1. They count 3/4 and 1/4.

    Round 1, from 0: 7/4 and 1, mean 25/16. Round 2: 25/16 + 7/16·39/16 = 673/256 and 1, mean 2275/1024.
    """
    clients = quadratics((1, 2), (4, 2), (3, 1))
    for rounds, expected in ((1, 25 / 16), (2, 2275 / 1024)):
        result = clients.train(partial(fedquilt.fed_prox, mu=1.0), rounds=rounds, lr=0.25)
        assert result.state.vector.item() == pytest.approx(expected, abs=1e-6)


def test_a_strong_pull_keeps_the_model_where_it_was(blobs, unbalanced, smooth):
    """With lr·μ = 1 every step after the first starts from a model pulled all the way back."""
    free, held = (
        fedquilt.train(
            smooth,
            blobs,
            unbalanced,
            fedquilt.fed_prox(fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=5), mu=mu),
            rounds=1,
            engine=fedquilt.inline(),
        ).state.vector
        for mu in (0.0, 10.0)
    )
    start = torch.cat([p.detach().flatten() for p in smooth.parameters()])
    assert torch.linalg.vector_norm(held - start) < 0.2 * torch.linalg.vector_norm(free - start)
