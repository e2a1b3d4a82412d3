"""Five techniques for non-IID data, written from the paper alone: a reference that shares no line with the package.

Ozdayi, Kantarcioglu and Iyer, Improving Accuracy of Federated Learning in Non-IID Settings (2020): §3.1 training at the
server, §3.2 and §4.2 projected gradient descent and noise, §3.3 momentum at the server, §3.4 sign agreement. Updates are
after − before (§2.1), so that the server adds them.

Two places are not as printed: equation 3, w ← v + ηw, is read as w ← w + ηv; and the sum of signs in §3.4 is compared with
θ by its absolute value, since as printed a dimension in which all agents agree to go down would be silenced. With
`absolute=False` it is as printed.

A model is a dict of tensors; a client is a pair (x, y). What the paper draws at random is an argument: `rounds` has for
every round {client: its E orderings of its own rows}; `noise` for every round {client: a standard normal dict for each
step}; `server_rounds` for every round the orderings of the server's rows.
"""

from __future__ import annotations

import torch


def forward(w, x):
    """One hidden layer with tanh."""
    return torch.tanh(x @ w["U"] + w["a"]) @ w["V"] + w["c"]


def gradient(w, x, y, weight_decay):
    """Of the mean of −log softmax(scores)[y], plus the weight decay of §4.1."""
    leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
    scores = forward(leaves, x)
    loss = (torch.logsumexp(scores, dim=1) - scores[torch.arange(len(y)), y]).mean()
    g = torch.autograd.grad(loss, list(leaves.values()))
    return {name: g_i + weight_decay * w[name] for name, g_i in zip(w, g, strict=True)}


def project(w, centre, radius):
    """The nearest model in the L2 ball: over all parameters as one vector."""
    length = sum(((w[name] - centre[name]) ** 2).sum() for name in w).sqrt()
    if length <= radius:
        return w
    return {name: centre[name] + (w[name] - centre[name]) * radius / length for name in w}


def sgd(w, x, y, lr, batch, orderings, weight_decay=0.0, std=0.0, normals=None, radius=None, centre=None):
    """Passes over the data in batches; noise is added to each gradient, and the model projected after each step."""
    size = int(min(batch, len(y)))
    step = 0
    for order in orderings:
        for first in range(0, len(y), size):
            b = order[first : first + size]
            g = gradient(w, x[b], y[b], weight_decay)
            if std:
                g = {name: g[name] + std * normals[step][name] for name in w}
            w = {name: w[name] - lr * g[name] for name in w}
            if radius is not None:
                w = project(w, centre, radius)
            step += 1
    return w


def agreement(updates, threshold, absolute):
    """1 in the dimensions in which the sum of the updates' signs reaches θ, else 0 (η_θ / η of §3.4)."""
    signs = {name: sum(torch.sign(update[name]) for update in updates) for name in updates[0]}
    sums = {name: value.abs() if absolute else value for name, value in signs.items()}
    return {name: (value >= threshold).to(value.dtype) for name, value in sums.items()}


def train(
    w, clients, lr, batch, rounds, weight_decay=0.0, *, eta=1.0, beta=0.0,
    radius=None, around="origin", std=0.0, noise=None,
    threshold=None, masked="step", absolute=True,
    server=None, server_lr=0.1, server_batch=float("inf"), server_rounds=None,
):  # fmt: skip
    """Return the model after all rounds; each technique stands for itself and is off by default."""
    zero = {name: torch.zeros_like(value) for name, value in w.items()}
    v = zero
    for t, drawn in enumerate(rounds):
        centre = zero if around == "origin" else w
        updates, mean = [], zero
        total = sum(len(clients[k][1]) for k in drawn)
        for k, orderings in drawn.items():
            x, y = clients[k]
            normals = noise[t][k] if noise else None
            local = sgd(w, x, y, lr, batch, orderings, weight_decay, std, normals, radius, centre)
            updates.append({name: local[name] - w[name] for name in w})
            mean = {name: mean[name] + len(y) / total * updates[-1][name] for name in w}  # equation 1
        mask = dict.fromkeys(w, 1.0) if threshold is None else agreement(updates, threshold, absolute)
        if masked == "update":
            mean = {name: mask[name] * mean[name] for name in w}
        v = {name: beta * v[name] + mean[name] for name in w}  # equation 2; with β = 0, v is the mean
        rate = {name: eta * mask[name] for name in w} if masked == "step" else dict.fromkeys(w, eta)
        w = {name: w[name] + rate[name] * v[name] for name in w}  # equations 3 and 4
        if server is not None:
            w = sgd(w, *server, server_lr, server_batch, server_rounds[t])
    return w
