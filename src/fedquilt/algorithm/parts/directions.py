"""Transforms that change a direction: FedProx's pull, what an exchange gives the client, noise, clipping, projection.

Norms are L2, over all parameters together, and taken with `torch.linalg.vector_norm`, whose gradient at 0 is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from fedquilt.algorithm.transform import At, Transform, chain, stateless
from fedquilt.compute.layout import State, Tensors

Centre = Literal["origin", "start"]


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


def norm(tensors: Iterable[Tensor]) -> Tensor:
    """Return the L2 norm of several tensors taken as one vector."""
    lengths = torch.stack([torch.linalg.vector_norm(tensor) for tensor in tensors])
    length: Tensor = torch.linalg.vector_norm(lengths)
    return length


def clip_by_norm(limit: float) -> Transform:
    """Shorten a direction that is longer than `limit`; leave shorter ones as they are.

    >>> step, _ = clip_by_norm(1.0).update({"w": torch.tensor([3.0, 4.0])}, {}, At({}, {}))
    >>> step["w"]
    tensor([0.6000, 0.8000])
    """
    return Transform(stateless, partial(_clip, limit))


def _clip(limit: float, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    factor = _shrink(norm(direction.values()), limit)
    return {name: d * factor for name, d in direction.items()}, state


def project_to_ball(radius: float, centre: Centre = "origin") -> Transform:
    """Change a step so that the model after it lies in the L2 ball of that radius.

    The ball is around the origin, as Ozdayi 2020 (§3.2) prints it, or around the model that the round started from.
    """
    return Transform(stateless, partial(_project, radius, centre))


def _project(radius: float, centre: Centre, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    if centre == "origin":
        after = {name: at.params[name] + d for name, d in direction.items()}
        factor = _shrink(norm(after.values()), radius)
        return {name: a * factor - at.params[name] for name, a in after.items()}, state
    away = {name: at.params[name] - at.start[name] + d for name, d in direction.items()}
    factor = _shrink(norm(away.values()), radius)
    return {name: a * factor + (at.start[name] - at.params[name]) for name, a in away.items()}, state


def _shrink(length: Tensor, limit: float) -> Tensor:
    # A length of 0 stays 0: min(1, limit / 0) would be NaN for a limit of 0.
    return torch.where(length > limit, limit / length, torch.ones_like(length))
