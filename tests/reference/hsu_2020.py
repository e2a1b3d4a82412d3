"""FedVC and FedIR, written from the paper alone: a reference that shares no line with the package.

Hsu, Qi and Brown, Federated Visual Classification with Real-World Data Distribution (2020): Algorithm 1, §5.1 (server
momentum), §5.2 (FedIR, equations 1 to 4), §5.3 (FedVC). Updates are before − after, so that the server subtracts them.

A model is a dict of tensors; a client is a pair (x, y). What the paper draws at random is an argument: `rounds` has for
every round a list of (client, passes), where a pass is a list of the client's own rows, cut into batches of B. FedAvg's
passes are E orderings of all rows; FedVC's is one, of the N_VC rows that were resampled. SelectClients may name a client
twice.
"""

from __future__ import annotations

import torch


def forward(w, x):
    """One hidden layer with tanh."""
    return torch.tanh(x @ w["U"] + w["a"]) @ w["V"] + w["c"]


def losses(w, x, y):
    """ℓ(x, y) = −log softmax(scores)[y] of every example."""
    scores = forward(w, x)
    return torch.logsumexp(scores, dim=1) - scores[torch.arange(len(y)), y]


def distribution(y, classes, dtype):
    """The share of every class."""
    return torch.tensor([int((y == c).sum()) for c in range(classes)], dtype=dtype) / len(y)


def importance(p, y):
    """w_k(x, y) ≈ p(y) / q_k(y) of every example of a client (equation 3)."""
    q = distribution(y, len(p), p.dtype)
    return torch.stack([p[label] / q[label] for label in y])


def batch_loss(w, x, y, weights, form):
    """L(b) of FedAvg, the mean of ℓ·w_k (equation 1), or the self-normalised L̃(b) (equation 4)."""
    each = losses(w, x, y)
    if form == "plain":
        return each.mean()
    if form == "equation 1":
        return (each * weights).mean()
    return (each * weights).sum() / weights.sum()


def client_update(theta, x, y, lr, batch, passes, weights, form):
    """ClientUpdate(k, θ_t): a step for each mini-batch; return θ_t − θ."""
    w = theta
    for rows in passes:
        size = int(min(batch, len(rows)))
        for first in range(0, len(rows), size):
            b = rows[first : first + size]
            leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
            g = torch.autograd.grad(batch_loss(leaves, x[b], y[b], weights[b], form), list(leaves.values()))
            w = {name: w[name] - lr * g_i for name, g_i in zip(w, g, strict=True)}
    return {name: theta[name] - w[name] for name in w}


def check_resample(rows, available, n_vc):
    """§5.3: exactly N_VC rows, none twice where the client has as many."""
    assert len(rows) == n_vc
    assert all(0 <= int(row) < available for row in rows)
    assert available < n_vc or len({int(row) for row in rows}) == n_vc


def train(theta, clients, lr, batch, rounds, classes, n_vc=None, form="plain", target=None, beta=0.0, gamma=1.0):
    """Return the model after Algorithm 1.

    With `n_vc` it is FedVC, with `form` "equation 1" or "equation 4" FedIR, with `beta` FedAvgM: θ ← θ − γv with
    v ← βv + ḡ. `target` is p(y); without it, that of all clients' data together.
    """
    dtype = next(iter(theta.values())).dtype
    p = distribution(torch.cat([y for _, y in clients]), classes, dtype) if target is None else target
    v = {name: torch.zeros_like(value) for name, value in theta.items()}
    for drawn in rounds:
        # AggregateClient: n_k/n with n over the selected clients; 1/K for virtual clients.
        sizes = [1 if n_vc else len(clients[k][1]) for k, _ in drawn]
        mean = {name: torch.zeros_like(value) for name, value in theta.items()}
        for size, (k, passes) in zip(sizes, drawn, strict=True):
            x, y = clients[k]
            if n_vc:
                (rows,) = passes
                check_resample(rows, len(y), n_vc)
            update = client_update(theta, x, y, lr, batch, passes, importance(p, y), form)
            mean = {name: mean[name] + size / sum(sizes) * update[name] for name in theta}
        v = {name: beta * v[name] + mean[name] for name in theta}
        theta = {name: theta[name] - gamma * v[name] for name in theta}
    return theta
