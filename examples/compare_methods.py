"""Compare methods on the same skewed clients: accuracy, and rounds to a target."""

from __future__ import annotations

import torch

import fedquilt as fq
from fedquilt.models import mnist_2nn

METHODS = {
    "FedSGD": fq.fed_sgd(lr=0.1, fraction=0.2),
    "FedAvg": fq.fed_avg(lr=0.1, fraction=0.2, epochs=3),
    "FedAvgM": fq.fed_avg_m(lr=0.1, fraction=0.2, epochs=3, server_momentum=0.9),
    "pooled data": fq.centralised(lr=0.1, batch=10),
}

if __name__ == "__main__":
    data = fq.digits()
    clients = fq.dirichlet(data.train.y.numpy(), clients=50, alpha=0.5, seed=1)
    torch.manual_seed(0)
    model = mnist_2nn(data=data)
    for name, method in METHODS.items():
        history = fq.train(model, data, clients, method, rounds=40, seed=1).history
        reached = history.rounds_to(0.85)
        rounds = "never" if reached is None else f"after {reached:.1f} rounds"
        print(f"{name:12} best {100 * history.best[1]:.1f}%, 85% {rounds}")
