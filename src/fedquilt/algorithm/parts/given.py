"""A direction changed by what an exchange gives the client for the round."""

from __future__ import annotations

from functools import partial

from fedquilt.algorithm.transform import At, Transform, stateless
from fedquilt.compute.layout import State, Tensors


def add_given(name: str) -> Transform:
    """Add what the exchange of that name gives, shaped like the parameters.

    >>> import torch
    >>> at = At({}, {}, given={"scaffold": {"w": torch.tensor([0.5])}})
    >>> add_given("scaffold").update({"w": torch.tensor([1.0])}, {}, at)[0]["w"]
    tensor([1.5000])
    """
    return Transform(stateless, partial(_add, name))


def _add(name: str, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    return {key: d + at.given[name][key] for key, d in direction.items()}, state
