"""A method of your own: clients shorten updates that are too long before they send them.

Run it with `python examples/own_method.py`, or name `own_method:clipped_fed_avg_m` in a spec.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

import fedquilt as fq
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.transform import At, Transform, chain, stateless
from fedquilt.base.arguments import Positive
from fedquilt.compute.layout import State, Tensors


def clip_by_norm(limit: float) -> Transform:
    """Shorten a direction to a Euclidean length of at most `limit`: Δ · min(1, limit / ‖Δ‖)."""
    return Transform(stateless, partial(_clip_by_norm, limit))


def _clip_by_norm(limit: float, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    squares = [value.square().sum() for value in direction.values()]
    scale = (limit / torch.stack(squares).sum().sqrt()).clamp(max=1.0)  # a length of 0 gives ∞, hence 1
    return {name: value * scale for name, value in direction.items()}, state


def clip_updates(algorithm: Algorithm, limit: float) -> Algorithm:
    """Add clipping to any method."""
    upload = chain(algorithm.upload, clip_by_norm(limit))
    return replace(algorithm, name=f"clipped_{algorithm.name}", upload=upload)


def clipped_fed_avg_m(limit: Positive = 1.0, **others: Any) -> Algorithm:
    """FedAvgM with updates of at most `limit`; the other arguments are those of `fed_avg_m`."""
    return clip_updates(fq.fed_avg_m(**others), limit)


if __name__ == "__main__":
    data = fq.digits()
    clients = fq.dirichlet(data.train.y.numpy(), clients=20, alpha=0.5, seed=1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    for limit in (0.1, 0.3, 1.0):
        method = clipped_fed_avg_m(limit=limit, lr=0.1, fraction=0.5)
        result = fq.train(model, data, clients, method, rounds=20, seed=1)
        print(f"limit {limit}: accuracy {result.history.accuracy[-1]:.3f}")
