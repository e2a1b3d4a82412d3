"""Importance reweighting (FedIR).

Hsu, Qi and Brown, Federated Visual Classification with Real-World Data Distribution (2020).

§5.2: each client weighs its examples by w_k = p(y) / q_k(y) (equation 3), so that its loss estimates the loss on a target
distribution p. Within a batch the weights are normalised by their sum (equation 4), since scaling the loss would change the
effective learning rate; equation 1, without that, is an argument.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedquilt.algorithm import Algorithm, Exchange, First, InitialFederation, State, add_exchange, claim
from fedquilt.base.arguments import NonNegative
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import wrappers

Target = Literal["population", "uniform", "server"] | Annotated[list[NonNegative], Field(min_length=2)]


@wrappers.register
def fed_ir(algorithm: Algorithm, target: Target = "population", normalise: bool = True) -> Algorithm:
    """Weigh a client's examples by p(y) / q_k(y), towards a target class distribution (Hsu 2020).

    - `target` is p: "population" is that of all clients' data, for which the server must know every client's class counts,
      as a simulation does; "uniform" the same for all classes; "server" that of the data that the server keeps to itself
      (`server_training`); or a list, one number each.
    - `normalise=False` is equation 1 instead of 4: the weights of a batch are not divided by their sum.

    q_k is over all of a client's data and never leaves it; p goes to every client, one number per class, and is counted in
    `bytes_down`. Classes that a client lacks cannot be made up for; those of target probability 0 have no say.

    >>> from fedquilt import fed_avg_m
    >>> fed_ir(fed_avg_m(), target=[1, 1, 2]).loss.normalise
    True
    """
    if isinstance(target, list) and not sum(target):
        raise SpecError("fed_ir: target: at least one class must have a probability above 0")
    first_broadcast = partial(_first_broadcast, tuple(target) if isinstance(target, list) else target)
    exchange = Exchange("fed_ir", first_broadcast=first_broadcast, needs_classes=target == "population")
    exchanging = add_exchange(algorithm, exchange)
    loss = replace(algorithm.loss, normalise=normalise)
    return claim(exchanging, "fed_ir", loss=loss, importance=by_class_ratio)


def _first_broadcast(target: str | tuple[float, ...], initial: InitialFederation) -> First:
    """Broadcast p, one number per class."""
    data = initial.data
    if target == "server" and not len(data.train):
        raise SpecError('target: "server" needs data at the server: wrap the method in server_training as well')
    if not data.classes:
        raise SpecError(f"fed_ir weighs examples by their class: the targets of {data.name} are numbers")
    if data.train.y.dim() != 1:
        raise SpecError(
            "fed_ir weighs examples by their class: it needs data with one class per example, not sequences"
        )
    if isinstance(target, tuple):
        if len(target) != data.classes:
            raise SpecError(f"target: has {len(target)} classes, where the data set {data.name} has {data.classes}")
        return First({"target": torch.tensor(target, dtype=torch.float32) / sum(target)})
    if target == "uniform":
        return First({"target": torch.full((data.classes,), 1 / data.classes)})
    if target == "population":
        counts = initial.population.classes_held.totals
    else:
        counts = np.bincount(data.train.y.numpy(), minlength=data.classes)
    return First({"target": torch.from_numpy(counts / counts.sum()).float()})


def by_class_ratio(labels: Tensor, classes: int, broadcast: State) -> Tensor:
    """Return p(y) / q_k(y) for every class; a class that the client lacks has the weight 0, which nothing asks for.

    >>> by_class_ratio(torch.tensor([0, 0, 0, 1]), 3, {"fed_ir": {"target": torch.tensor([0.25, 0.25, 0.5])}})
    tensor([0.3333, 1.0000, 0.0000])
    """
    target: Tensor = broadcast["fed_ir"]["target"]  # type: ignore[index,assignment]
    share = torch.bincount(labels, minlength=classes).float() / len(labels)
    return torch.where(share > 0, target / share.clamp(min=1e-30), torch.zeros_like(share))
