"""FedAvgM, written from the paper alone: a reference that shares no line with the package.

Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification (2019),
§4.2. The clients' update Δw_k is before − after, so that the server subtracts it.

A model is a dict of tensors; a client is a pair (x, y). What the paper draws at random is an argument: `rounds` has for
every round {client: its E orderings of its own rows}.
"""

from __future__ import annotations

import torch


def forward(w, x):
    """One hidden layer with tanh."""
    return torch.tanh(x @ w["U"] + w["a"]) @ w["V"] + w["c"]


def loss(w, x, y, weight_decay):
    """The mean of −log softmax(scores)[y], plus an L2 penalty: the paper trains with a weight decay of 0.004."""
    scores = forward(w, x)
    data = (torch.logsumexp(scores, dim=1) - scores[torch.arange(len(y)), y]).mean()
    return data + weight_decay / 2 * sum((value**2).sum() for value in w.values())


def local_sgd(w, x, y, lr, batch, orderings, weight_decay):
    """SGD over the client's data, E times in batches of B."""
    size = int(min(batch, len(y)))
    for order in orderings:
        for first in range(0, len(y), size):
            b = order[first : first + size]
            leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
            g = torch.autograd.grad(loss(leaves, x[b], y[b], weight_decay), list(leaves.values()))
            w = {name: w[name] - lr * g_i for name, g_i in zip(w, g, strict=True)}
    return w


def averaged_update(w, clients, lr, batch, drawn, weight_decay):
    """Δw = Σ_k (n_k/n) Δw_k over the clients that report."""
    n = sum(len(clients[k][1]) for k in drawn)
    total = {name: torch.zeros_like(value) for name, value in w.items()}
    for k, orderings in drawn.items():
        x, y = clients[k]
        w_k = local_sgd(w, x, y, lr, batch, orderings, weight_decay)
        total = {name: total[name] + len(y) / n * (w[name] - w_k[name]) for name in w}
    return total


def fed_avg_m(w, clients, lr, batch, rounds, beta, server_lr=1.0, weight_decay=0.0):
    """Return the model after v ← βv + Δw and w ← w − v in every round; the server's rate, 1 in the paper, multiplies v."""
    v = {name: torch.zeros_like(value) for name, value in w.items()}
    for drawn in rounds:
        delta = averaged_update(w, clients, lr, batch, drawn, weight_decay)
        v = {name: beta * v[name] + delta[name] for name in w}
        w = {name: w[name] - server_lr * v[name] for name in w}
    return w


def fed_avg_m_nesterov(w, clients, lr, batch, rounds, beta, server_lr=1.0, weight_decay=0.0):
    """Return the model after Nesterov's accelerated gradient at the server, as he has it.

    The paper names it and gives no formula. Here the clients start from the point ahead, w − γβv, to which the old
    velocity alone would carry the model; then v ← βv + Δw and w ← w − γv. What is returned is the next point ahead, the
    model that the server would send out.

    Common code keeps only that point, u = w − γβv. Then u ← u − γ(Δw + βv), with v the new velocity, since
    u' = w' − γβv' = (u + γβv) − γv' − γβv' and v' = βv + Δw.
    """
    v = {name: torch.zeros_like(value) for name, value in w.items()}
    ahead = dict(w)
    for drawn in rounds:
        delta = averaged_update(ahead, clients, lr, batch, drawn, weight_decay)
        v = {name: beta * v[name] + delta[name] for name in w}
        w = {name: w[name] - server_lr * v[name] for name in w}
        ahead = {name: w[name] - server_lr * beta * v[name] for name in w}
    return ahead
