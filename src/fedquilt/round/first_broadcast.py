"""What the server sends before the first round besides the model, made from what clients upload for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.exchange import InitialFederation
from fedquilt.base.errors import FedquiltError, naming_part
from fedquilt.compute.layout import State, Tensors
from fedquilt.partition.population import Population

FirstUploads = Mapping[int, Mapping[str, Tensors]]
"""What clients upload before the first round: by client, then by the exchange that asks for it."""


class FirstBroadcast(NamedTuple):
    """What the server sends before the first round besides the model, and the bytes that clients moved for it."""

    broadcast: State
    uploaded: int = 0
    downloaded: int = 0


NO_BROADCAST = FirstBroadcast({})


def waits_for_clients(algorithm: Algorithm) -> list[str]:
    """Return the exchanges whose first broadcast takes something of every client."""
    return [each.name for each in algorithm.exchanges if each.first_upload is not None or each.needs_classes]


def first_broadcast(algorithm: Algorithm, initial: InitialFederation, uploads: FirstUploads) -> FirstBroadcast:
    """Make what the server sends before the first round, besides the model."""
    firsts = {}
    for exchange in algorithm.exchanges:
        if exchange.first_broadcast is not None:
            with naming_part(exchange.name):
                told: dict[int, Tensors] = {}
                if exchange.first_upload is not None:
                    told = {client: dict(each[exchange.name]) for client, each in uploads.items()}
                firsts[exchange.name] = exchange.first_broadcast(replace(initial, uploads=told))
    return FirstBroadcast(
        broadcast={name: dict(first.broadcast) for name, first in firsts.items()},
        uploaded=sum(first.uploaded for first in firsts.values()),
        downloaded=max((first.asked for first in firsts.values()), default=0) * initial.replica.layout.nbytes,
    )


def require_usable(algorithm: Algorithm, uploads: FirstUploads, population: Population) -> None:
    """Refuse first uploads that are not those of all clients with examples, that are not finite, or that differ in form."""
    for exchange in algorithm.exchanges:
        if exchange.first_upload is None:
            continue
        told = {client: each[exchange.name] for client, each in uploads.items() if each.get(exchange.name)}
        expected = {client for client, size in enumerate(population.sizes.tolist()) if size}
        missing, unasked = sorted(expected - told.keys()), sorted(told.keys() - expected)
        if missing:
            who = ", ".join(population.name_of(client) for client in missing)
            raise FedquiltError(
                f"{exchange.name} lacks the first upload of {who}: every client with examples sends one"
            )
        if unasked:
            raise FedquiltError(f"{exchange.name} has a first upload of client {unasked[0]}, which has no examples")
        forms = {}
        for client, tensors in sorted(told.items()):
            if not all(isinstance(each, Tensor) and bool(torch.isfinite(each).all()) for each in tensors.values()):
                who = population.name_of(client)
                raise FedquiltError(f"{exchange.name}: the first upload of {who} has values that are not finite")
            forms[client] = tuple(sorted((key, str(each.dtype), each.shape) for key, each in tensors.items()))
        usual = Counter(forms.values()).most_common(1)
        for client, form in forms.items():
            if form != usual[0][0]:
                who = population.name_of(client)
                raise FedquiltError(f"{exchange.name}: the first upload of {who} has another form than most others")
