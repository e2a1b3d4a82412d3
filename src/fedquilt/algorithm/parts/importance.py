"""Weights of examples by their class: p(y) / q_k(y) of Hsu 2020, equation 3.

q_k is the class distribution of all of a client's data; it is computed on the client and never leaves it. The numerator,
p, is announced by the server: one number a class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedquilt.algorithm.exchange import First, Setting
from fedquilt.base.errors import SpecError
from fedquilt.base.types import Indices
from fedquilt.compute.layout import State

Announce = Callable[[Setting], First]


def by_class_ratio(labels: Tensor, classes: int, broadcast: State) -> Tensor:
    """Return p(y) / q_k(y) for every class; a class that the client lacks has the weight 0, which nothing asks for.

    >>> by_class_ratio(torch.tensor([0, 0, 0, 1]), 3, {"fed_ir": {"target": torch.tensor([0.25, 0.25, 0.5])}})
    tensor([0.3333, 1.0000, 0.0000])
    """
    target: Tensor = broadcast["fed_ir"]["target"]  # type: ignore[index,assignment]
    share = torch.bincount(labels, minlength=classes).float() / len(labels)
    return torch.where(share > 0, target / share.clamp(min=1e-30), torch.zeros_like(share))


def announce_given(target: tuple[float, ...]) -> Announce:
    """Announce a target class distribution that is known."""
    return partial(_given, target)


def _given(target: tuple[float, ...], setting: Setting) -> First:
    data = _one_label(setting).data
    if len(target) != data.classes:
        raise SpecError(f"target: has {len(target)} classes, where the data set {data.name} has {data.classes}")
    return First({"target": torch.tensor(target, dtype=torch.float32) / sum(target)})


def announce_uniform(setting: Setting) -> First:
    """Announce that every class counts the same."""
    return First({"target": torch.full((_one_label(setting).data.classes,), 1 / setting.data.classes)})


def announce_population(setting: Setting) -> First:
    """Announce the class distribution of all clients' data together: known in simulation only."""
    return _of_rows(setting, setting.partition.indices.astype(np.int64))


def announce_server(setting: Setting) -> First:
    """Announce the class distribution of the data that the server keeps to itself."""
    if not len(setting.server_rows):
        raise SpecError('target: "server" needs data at the server: wrap the method in server_training as well')
    return _of_rows(setting, setting.server_rows)


def _one_label(setting: Setting) -> Setting:
    if not setting.data.classes:
        raise SpecError(f"fed_ir weighs examples by their class: the targets of {setting.data.name} are numbers")
    if setting.data.train.y.dim() != 1:
        raise SpecError("fed_ir weighs examples by their class: it needs data with one label an example, not sequences")
    return setting


def _of_rows(setting: Setting, rows: Indices) -> First:
    counts = np.bincount(_one_label(setting).data.train.y.numpy()[rows], minlength=setting.data.classes)
    return First({"target": torch.from_numpy(counts / counts.sum()).float()})
