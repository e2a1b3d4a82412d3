"""Weights of examples by their class: p(y) / q_k(y) of Hsu 2020, equation 3.

q_k is the class distribution of all of a client's data; it is computed on the client and never leaves it. The numerator,
p, is announced by the server: one number a class.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.algorithm import Announce
from fedquilt.core.params import Tensors
from fedquilt.data.data import Data
from fedquilt.errors import SpecError
from fedquilt.partition.partition import Partition


def by_class_ratio(labels: Tensor, classes: int, announced: Tensors) -> Tensor:
    """Return p(y) / q_k(y) for every class; a class that the client lacks has the weight 0, which nothing asks for.

    >>> by_class_ratio(torch.tensor([0, 0, 0, 1]), 3, {"target": torch.tensor([0.25, 0.25, 0.5])})
    tensor([0.3333, 1.0000, 0.0000])
    """
    share = torch.bincount(labels, minlength=classes).float() / len(labels)
    return torch.where(share > 0, announced["target"] / share.clamp(min=1e-30), torch.zeros_like(share))


def announce_given(target: tuple[float, ...]) -> Announce:
    """Announce a target class distribution that is known."""
    return partial(_given, target)


def _given(target: tuple[float, ...], data: Data, partition: Partition) -> Tensors:
    if len(target) != data.classes:
        raise SpecError(f"target: has {len(target)} classes, where the data set {data.name} has {data.classes}")
    return {"target": torch.tensor(target, dtype=torch.float32) / sum(target)}


def announce_uniform(data: Data, partition: Partition) -> Tensors:
    """Announce that every class counts the same."""
    return {"target": torch.full((data.classes,), 1 / data.classes)}


def announce_population(data: Data, partition: Partition) -> Tensors:
    """Announce the class distribution of all clients' data together: known in simulation only."""
    counts = np.bincount(data.train.y.numpy()[partition.indices], minlength=data.classes)
    return {"target": torch.from_numpy(counts / counts.sum()).float()}
