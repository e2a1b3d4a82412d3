"""Transforms about the L2 norm: clipping a step, and projecting the model to a ball.

Norms are over all parameters together. They are taken with `torch.linalg.vector_norm`, whose gradient at 0 is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from fedquilt.algorithm.transform import At, Transform, stateless
from fedquilt.compute.layout import State, Tensors

Centre = Literal["origin", "start"]


def norm(tensors: Iterable[Tensor]) -> Tensor:
    """Return the L2 norm of several tensors taken as one vector.

    >>> norm([torch.tensor([3.0]), torch.tensor([0.0, 4.0])])
    tensor(5.)
    """
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

    >>> at = At({"w": torch.tensor([3.0, 0.0])}, {"w": torch.tensor([3.0, 0.0])})
    >>> step, _ = project_to_ball(5.0).update({"w": torch.tensor([0.0, 40.0])}, {}, at)
    >>> after = at.params["w"] + step["w"]
    >>> round(float(after.norm()), 5)
    5.0
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
