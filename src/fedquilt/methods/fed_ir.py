"""Importance reweighting (FedIR).

Hsu, Qi and Brown, Federated Visual Classification with Real-World Data Distribution (2020).

§5.2: each client weighs its examples by w_k = p(y) / q_k(y) (equation 3), so that its loss estimates the loss on a target
distribution p. Within a batch the weights are normalised by their sum (equation 4), since scaling the loss would change the
effective learning rate; equation 1, without that, is an argument.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from fedquilt.algorithm.algorithm import Algorithm, add_exchange, claim
from fedquilt.algorithm.exchange import Exchange
from fedquilt.algorithm.parts.importance import (
    TargetBroadcast,
    broadcast_given,
    broadcast_population,
    broadcast_server,
    broadcast_uniform,
    by_class_ratio,
)
from fedquilt.base.arguments import NonNegative
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import wrappers

Target = Literal["population", "uniform", "server"] | Annotated[list[NonNegative], Field(min_length=2)]

_BROADCASTS: dict[str, TargetBroadcast] = {
    "population": broadcast_population,
    "uniform": broadcast_uniform,
    "server": broadcast_server,
}


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
    first_broadcast = _BROADCASTS[target] if isinstance(target, str) else broadcast_given(tuple(target))
    exchange = Exchange("fed_ir", first_broadcast=first_broadcast, needs_classes=target == "population")
    exchanging = add_exchange(algorithm, exchange)
    loss = replace(algorithm.loss, normalise=normalise)
    return claim(exchanging, "fed_ir", loss=loss, importance=by_class_ratio)
