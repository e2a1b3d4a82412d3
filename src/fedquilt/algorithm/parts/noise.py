"""Gaussian noise on a direction: gradients, updates, or the server's step."""

from __future__ import annotations

from functools import partial

from fedquilt.algorithm.transform import At, Transform, chain, stateless
from fedquilt.compute.layout import State, Tensors


def add_noise(std: float) -> Transform:
    """Add independent noise N(0, std²) to every element; a std of zero adds nothing.

    Parameters that the loss does not depend on have no gradient to add noise to, and stay as they are.

    The draws are made beforehand, keyed by client and step.

    >>> import torch
    >>> at = At({}, {}, normals=[{"w": torch.tensor([2.0])}])
    >>> add_noise(0.5).update({"w": torch.tensor([1.0])}, {}, at)[0]["w"]
    tensor([2.])
    """
    return Transform(stateless, partial(_add, std), normals=1) if std else chain()


def _add(std: float, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    noisy = {name: d if name in at.unused else d.add(at.normals[0][name], alpha=std) for name, d in direction.items()}
    return noisy, state
