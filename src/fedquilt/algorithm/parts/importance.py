"""Weights of examples by their class: p(y) / q_k(y) of Hsu 2020, equation 3.

q_k is the class distribution of all of a client's data; it is computed on the client and never leaves it. The numerator,
p, is broadcast by the server: one number per class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedquilt.algorithm.exchange import First, InitialFederation
from fedquilt.base.errors import SpecError
from fedquilt.base.types import Indices
from fedquilt.compute.layout import State

TargetBroadcast = Callable[[InitialFederation], First]


def by_class_ratio(labels: Tensor, classes: int, broadcast: State) -> Tensor:
    """Return p(y) / q_k(y) for every class; a class that the client lacks has the weight 0, which nothing asks for.

    >>> by_class_ratio(torch.tensor([0, 0, 0, 1]), 3, {"fed_ir": {"target": torch.tensor([0.25, 0.25, 0.5])}})
    tensor([0.3333, 1.0000, 0.0000])
    """
    target: Tensor = broadcast["fed_ir"]["target"]  # type: ignore[index,assignment]
    share = torch.bincount(labels, minlength=classes).float() / len(labels)
    return torch.where(share > 0, target / share.clamp(min=1e-30), torch.zeros_like(share))


def broadcast_given(target: tuple[float, ...]) -> TargetBroadcast:
    """Broadcast a target class distribution that is known."""
    return partial(_given, target)


def _given(target: tuple[float, ...], initial: InitialFederation) -> First:
    data = _one_label(initial).data
    if len(target) != data.classes:
        raise SpecError(f"target: has {len(target)} classes, where the data set {data.name} has {data.classes}")
    return First({"target": torch.tensor(target, dtype=torch.float32) / sum(target)})


def broadcast_uniform(initial: InitialFederation) -> First:
    """Broadcast that every class counts the same."""
    return First({"target": torch.full((_one_label(initial).data.classes,), 1 / initial.data.classes)})


def broadcast_population(initial: InitialFederation) -> First:
    """Broadcast the class distribution of all clients' data together, for which the server must know their class counts."""
    return _distribution(_one_label(initial).population.classes_held.totals)


def broadcast_server(initial: InitialFederation) -> First:
    """Broadcast the class distribution of the data that the server holds."""
    data = initial.data
    if not len(data.train):
        raise SpecError('target: "server" needs data at the server: wrap the method in server_training as well')
    return _distribution(np.bincount(_one_label(initial).data.train.y.numpy(), minlength=data.classes))


def _one_label(initial: InitialFederation) -> InitialFederation:
    if not initial.data.classes:
        raise SpecError(f"fed_ir weighs examples by their class: the targets of {initial.data.name} are numbers")
    if initial.data.train.y.dim() != 1:
        raise SpecError(
            "fed_ir weighs examples by their class: it needs data with one class per example, not sequences"
        )
    return initial


def _distribution(counts: Indices) -> First:
    return First({"target": torch.from_numpy(counts / counts.sum()).float()})
