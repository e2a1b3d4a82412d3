"""OneShot, FedProx, FL+HC and FedAvgR, written from the paper alone: a reference that shares no line with the package.

Wei et al. (2022): Algorithm 1, §4.1 and §5.3. It says of OneShot that local models are averaged when their training has
converged, of FedProx that the last round's model regularises local training, of FL+HC that clients are clustered and then
average apart, and no more: what converged and clustered mean is said at the functions.

A model is {"omega", "b", "W"}: f(x) = Wᵀφ(x) with random Fourier features φ(x) = √2 cos(ωᵀx + b), all three trained; a
client is a pair (x, y). All clients take part in every round (§2), with full batches, so that nothing is drawn but the
samples Z of FedAvgR. Clients have momentum (§5.3), at rest when a round begins.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage


def phi(w, x):
    """φ(x) of every row (§5.1)."""
    return 2**0.5 * torch.cos(x @ w["omega"] + w["b"])


def data_loss(w, x, y):
    """The mean of −log softmax(f(x))[y]."""
    scores = phi(w, x) @ w["W"]
    return (torch.logsumexp(scores, dim=1) - scores[torch.arange(len(y)), y]).mean()


def at_rest(w):
    return {name: torch.zeros_like(value) for name, value in w.items()}


def step(w, velocity, objective, lr, momentum):
    leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
    g = torch.autograd.grad(objective(leaves), list(leaves.values()))
    velocity = {name: momentum * velocity[name] + g_i for name, g_i in zip(w, g, strict=True)}
    return {name: w[name] - lr * velocity[name] for name in w}, velocity


def local_model(w, objective, lr, epochs, momentum):
    velocity = at_rest(w)
    for _ in range(epochs):
        w, velocity = step(w, velocity, objective, lr, momentum)
    return w


def average(models, clients):
    """Σ_k (n_k/n) w_k (§4.2)."""
    n = sum(len(y) for _, y in clients)
    return {key: sum(len(y) / n * w[key] for w, (_, y) in zip(models, clients, strict=True)) for key in models[0]}


def one_shot(w, clients, lr, tolerance, patience, max_epochs, momentum=0.0):
    """Return the average of converged models, and each client's losses, one an epoch.

    Converged: for `patience` epochs in a row the loss fell by no more than tolerance · the loss of the epoch before.
    """
    models, losses = [], []
    for x, y in clients:
        w_k, velocity, seen, still = w, at_rest(w), [], 0
        while still < patience and len(seen) < max_epochs:
            seen.append(data_loss(w_k, x, y).item())
            w_k, velocity = step(w_k, velocity, lambda u, x=x, y=y: data_loss(u, x, y), lr, momentum)
            still = still + 1 if len(seen) > 1 and seen[-2] - seen[-1] <= tolerance * seen[-2] else 0
        models.append(w_k)
        losses.append(seen)
    return average(models, clients), losses


def local_models(w, clients, lr, epochs, mu, momentum):
    """Every client's minimiser, as far as E steps go, of F_k(u) + (μ/2)·‖u − w‖²."""

    def objective(u, x, y):
        return data_loss(u, x, y) + mu / 2 * sum(((u[name] - w[name]) ** 2).sum() for name in w)

    return [local_model(w, lambda u, c=c: objective(u, *c), lr, epochs, momentum) for c in clients]


def fed_prox(w, clients, lr, epochs, rounds, mu, momentum=0.0):
    """Return the model after rounds of FedProx; μ = 0 is FedAvg."""
    for _ in range(rounds):
        w = average(local_models(w, clients, lr, epochs, mu, momentum), clients)
    return w


def fl_hc(w, clients, lr, epochs, together, apart, clusters, momentum=0.0):
    """Return the model of each client's cluster, and the clients' labels.

    FedAvg of all for `together` rounds. Then all train once more; these updates are clustered (Ward), and they and those
    of later rounds, `apart` rounds in all, are averaged within a client's cluster.
    """
    w = fed_prox(w, clients, lr, epochs, together, 0.0, momentum)
    models = local_models(w, clients, lr, epochs, 0.0, momentum)
    updates = np.stack([torch.cat([(m[name] - w[name]).flatten() for name in w]).numpy() for m in models])
    labels = fcluster(linkage(updates, method="ward"), clusters, criterion="maxclust").tolist()
    of = {}
    for label in set(labels):
        members = [k for k in range(len(clients)) if labels[k] == label]
        held = [clients[k] for k in members]
        of[label] = fed_prox(average([models[k] for k in members], held), held, lr, epochs, apart - 1, 0.0, momentum)
    return [of[label] for label in labels], labels


def fed_avg_r(w, clients, lr, epochs, rounds, alpha, beta, gamma, draw, momentum=0.0, squared=False):
    """Return the model after Algorithm 1, whose objective is ℓ + α‖W‖_* + β‖φ(X)‖_F + γ‖mean φ(x) − mean Z‖₂.

    `draw(t, k, features)` returns the samples Z of client k in round t (from 1), fixed within the round. The features are
    φ(X_k) of all clients: by the first model at first, then by each client's own at the end of its last local epoch
    (Client-Update, line 8). How a distribution is estimated from them the paper does not say.
    """

    def objective(u, x, y, z):
        mapped = phi(u, x)
        apart = ((mapped.mean(0) - z.mean(0)) ** 2).sum()
        nuclear, frobenius = torch.linalg.svdvals(u["W"]).sum(), (mapped**2).sum().sqrt()
        return data_loss(u, x, y) + alpha * nuclear + beta * frobenius + gamma * (apart if squared else apart.sqrt())

    features = [phi(w, x) for x, _ in clients]
    for t in range(1, rounds + 1):
        drawn = [draw(t, k, features) for k in range(len(clients))]
        given = zip(clients, drawn, strict=True)
        models = [local_model(w, lambda u, c=c, z=z: objective(u, *c, z), lr, epochs, momentum) for c, z in given]
        w = average(models, clients)
        features = [phi(model, x) for model, (x, _) in zip(models, clients, strict=True)]
    return w
