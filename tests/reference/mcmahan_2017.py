"""FedSGD and FedAvg, written from the paper alone: a reference that shares no line with the package.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017), §2 and Algorithm 1.

A model is a dict of tensors; a client is a pair (x, y). What the paper draws at random is an argument: `rounds` has for
every round {client: its E orderings of its own rows}, so that its keys are S_t.
"""

from __future__ import annotations

import torch


def forward(w, x):
    """One hidden layer with tanh."""
    return torch.tanh(x @ w["U"] + w["a"]) @ w["V"] + w["c"]


def loss(w, x, y):
    """The mean over examples of −log softmax(scores)[y]."""
    scores = forward(w, x)
    return (torch.logsumexp(scores, dim=1) - scores[torch.arange(len(y)), y]).mean()


def gradient(w, x, y):
    """∇ℓ(w; b)."""
    leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
    return dict(zip(leaves, torch.autograd.grad(loss(leaves, x, y), list(leaves.values())), strict=True))


def fed_sgd(w, clients, lr, rounds):
    """Return the model after w_{t+1} ← w_t − η Σ_k (n_k/n) g_k with g_k = ∇F_k(w_t), all clients taking part (C = 1)."""
    n = sum(len(y) for _, y in clients)
    for _ in range(rounds):
        g = [gradient(w, x, y) for x, y in clients]
        mean = {name: sum(len(y) / n * g_k[name] for g_k, (_, y) in zip(g, clients, strict=True)) for name in w}
        w = {name: w[name] - lr * mean[name] for name in w}
    return w


def client_update(w, x, y, lr, batch, orderings, velocity, momentum):
    """ClientUpdate(k, w): E passes in batches of B, the last of a pass smaller where B does not divide n_k.

    The paper's clients have no momentum; with momentum 0 the velocity is the gradient and the step is the paper's.
    """
    size = int(min(batch, len(y)))
    for order in orderings:
        for first in range(0, len(y), size):
            b = order[first : first + size]
            g = gradient(w, x[b], y[b])
            velocity = {name: momentum * velocity[name] + g[name] for name in w}
            w = {name: w[name] - lr * velocity[name] for name in w}
    return w, velocity


def fed_avg(w, clients, lr, batch, rounds, momentum=0.0, keep_momentum=False, lr_decay=1.0):
    """Return the model after w_{t+1} ← Σ_{k ∈ S_t} (n_k/m_t) w^k_{t+1}, with m_t = Σ_{k ∈ S_t} n_k, in every round."""
    at_rest = {name: torch.zeros_like(value) for name, value in w.items()}
    velocities = {}
    for t, drawn in enumerate(rounds):
        m_t = sum(len(clients[k][1]) for k in drawn)
        total = dict(at_rest)
        for k, orderings in drawn.items():
            x, y = clients[k]
            before = velocities.get(k, at_rest) if keep_momentum else at_rest
            w_k, velocities[k] = client_update(w, x, y, lr * lr_decay**t, batch, orderings, before, momentum)
            total = {name: total[name] + len(y) / m_t * w_k[name] for name in w}
        w = total
    return w
