"""FedProx (Li 2020) against an explicit penalty."""

from __future__ import annotations

import copy

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
