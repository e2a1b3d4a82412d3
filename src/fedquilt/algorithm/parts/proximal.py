"""The gradient of FedProx's proximal term."""

from __future__ import annotations

from functools import partial

from fedquilt.algorithm.transform import At, Transform, stateless
from fedquilt.compute.layout import State, Tensors


def pull_to_start(mu: float) -> Transform:
    """Add the gradient of (μ/2)·‖w − w_t‖², with w_t the model that the round started from.

    >>> import torch
    >>> at = At({"w": torch.tensor([3.0])}, {"w": torch.tensor([1.0])})
    >>> pull_to_start(0.5).update({"w": torch.tensor([0.0])}, {}, at)[0]["w"]
    tensor([1.])
    """
    return Transform(stateless, partial(_pull, mu))


def _pull(mu: float, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    return {name: d.add(at.params[name] - at.start[name], alpha=mu) for name, d in direction.items()}, state
