"""Transforms that add something to a direction: FedProx's pull, what an exchange gives the client, Gaussian noise."""

from __future__ import annotations

from functools import partial

from fedquilt.algorithm.transform import At, Transform, chain, stateless
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


def add_given(name: str) -> Transform:
    """Add what the exchange of that name gives, shaped like the parameters.

    >>> import torch
    >>> at = At({}, {}, given={"scaffold": {"w": torch.tensor([0.5])}})
    >>> add_given("scaffold").update({"w": torch.tensor([1.0])}, {}, at)[0]["w"]
    tensor([1.5000])
    """
    return Transform(stateless, partial(_add_given, name))


def _add_given(name: str, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    return {key: d + at.given[name][key] for key, d in direction.items()}, state


def add_noise(std: float) -> Transform:
    """Add independent noise N(0, std²) to every element; a std of zero adds nothing.

    Parameters that the loss does not depend on have no gradient to add noise to, and stay as they are.

    The draws are made beforehand, keyed by client and step.

    >>> import torch
    >>> at = At({}, {}, normals=[{"w": torch.tensor([2.0])}])
    >>> add_noise(0.5).update({"w": torch.tensor([1.0])}, {}, at)[0]["w"]
    tensor([2.])
    """
    return Transform(stateless, partial(_add_noise, std), normals=1) if std else chain()


def _add_noise(std: float, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    noisy = {name: d if name in at.unused else d.add(at.normals[0][name], alpha=std) for name, d in direction.items()}
    return noisy, state
