"""What a client does in a round: its exchanges begin, it trains, they end, and it sends its update."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fedquilt.core.algorithm import Algorithm
from fedquilt.core.context import ClientData, Context
from fedquilt.core.exchange import Trained, Visit
from fedquilt.core.fit import OPTIMISER, Fitted, draw_normals, fit
from fedquilt.core.params import Tensors
from fedquilt.core.rng import generator
from fedquilt.core.transform import At, State, changes_nothing, effective_steps
from fedquilt.text import LONGEST_TEXT, visible

LONGEST_REASON = LONGEST_TEXT + 200
"""Characters of a fault's reason: those of a text from a client, and our own around it."""


@dataclass(frozen=True, eq=False)
class ClientUpdate:
    """What a client sends back. Its tensors are valid until the engine is asked for the next one.

    `told` and `keep` are by exchange: what the client tells the server, and what it remembers.
    """

    client: int
    slot: int
    delta: Tensor
    buffers: Tensor
    counters: Tensor
    weight: float
    loss: float
    steps: int
    examples: int
    keep: State | None = None
    told: State = field(default_factory=dict)


Kind = Literal["error", "unusable update", "overflow", "died", "too slow", "no examples", "absent"]
"""What kind of fault it is: reasons may all differ, and are counted by this. "overflow" is NaN, infinite or too large."""


@dataclass(frozen=True)
class Fault:
    """A client that is left out of a round, and why; `simulated` if the simulation asked for it.

    The reason may hold what a client said, and is made safe to store and to show here, for everybody who reads it.
    """

    client: int
    slot: int
    reason: str
    simulated: bool = False
    kind: Kind = "error"

    def __post_init__(self) -> None:
        """Make the reason one line of bounded length, without control characters."""
        object.__setattr__(self, "reason", visible(self.reason, LONGEST_REASON))

    def named(self) -> dict[str, Any]:
        """Return what a record says of it."""
        return {"client": self.client, "kind": self.kind, "reason": self.reason}


@dataclass(frozen=True, eq=False)
class Opened:
    """A client's visit after every exchange has begun: what training is given, by exchange."""

    visits: dict[str, Visit]
    given: dict[str, Tensors]


def client_update(algorithm: Algorithm, context: Context, data: ClientData) -> ClientUpdate:
    """Train the round's model on one client's data and return the difference.

    Pure: the same arguments give the same bits, in whatever process.
    """
    opened = open_visit(algorithm, context, data)
    fitted = fit(algorithm, context, data, context.start, opened.given)
    return close_visit(algorithm, context, data, opened, fitted)


def sends_difference_alone(algorithm: Algorithm, context: Context) -> bool:
    """Say whether a client's update is the difference between two models and nothing else."""
    more = algorithm.exchanges or context.corruption or algorithm.keep_local_state
    return not more and changes_nothing(algorithm.upload)


def open_visit(algorithm: Algorithm, context: Context, data: ClientData) -> Opened:
    """Let every exchange begin."""
    visits = {
        exchange.name: Visit(context, data, _table(context.announced, exchange.name), _kept(context, exchange.name))
        for exchange in algorithm.exchanges
    }
    return Opened(visits, {e.name: e.begin(visits[e.name]) for e in algorithm.exchanges if e.begin is not None})


def close_visit(
    algorithm: Algorithm, context: Context, data: ClientData, opened: Opened, fitted: Fitted
) -> ClientUpdate:
    """Make a client's update of what local training ended with, and let every exchange end."""
    delta = fitted.after.vector - context.start.vector
    keep: State = {OPTIMISER: fitted.optimiser} if algorithm.keep_local_state else {}
    told: State = {}
    trained = _trained(algorithm, context, fitted, delta)
    for exchange in algorithm.exchanges:
        if exchange.end is not None:
            parting = exchange.end(opened.visits[exchange.name], trained)
            keep |= {exchange.name: dict(parting.keep)} if parting.keep is not None else {}
            told |= {exchange.name: dict(parting.told)} if parting.told is not None else {}
    return ClientUpdate(
        client=context.client,
        slot=context.slot,
        delta=_corrupted(context, _uploaded(algorithm, context, delta)),
        buffers=fitted.after.buffers,
        counters=fitted.after.counters,
        weight=float(algorithm.weigh(len(data))),
        loss=fitted.loss,
        steps=fitted.steps,
        examples=fitted.examples,
        keep=keep or None,
        told=told,
    )


def _table(state: State, name: str) -> Tensors:
    return state.get(name, {})  # type: ignore[return-value]


def _kept(context: Context, name: str) -> Tensors | None:
    return context.kept.get(name)  # type: ignore[return-value]


def _trained(algorithm: Algorithm, context: Context, fitted: Fitted, delta: Tensor) -> Trained:
    local = algorithm.local
    return Trained(
        after=fitted.after,
        delta=delta,
        steps=fitted.steps,
        effective_steps=effective_steps(fitted.steps, local.momentum),
        lr=local.rates[-1](context.round) if local.rates else 1.0,
    )


def _corrupted(context: Context, delta: Tensor) -> Tensor:
    for number, corruption in enumerate(context.corruption):
        if corruption.update is not None and corruption.hits(context.client, context.population, context.seed):
            delta = corruption.update(delta, generator(context.seed, "corruption", *context.key, number))
    return delta


def _uploaded(algorithm: Algorithm, context: Context, delta: Tensor) -> Tensor:
    upload = algorithm.upload
    if changes_nothing(upload):
        return delta
    named, params = {"model": delta}, {"model": context.start.vector}
    rates = [torch.tensor(rate(context.round), dtype=torch.float32) for rate in upload.rates]
    noise = generator(context.seed, "upload noise", *context.key) if upload.normals else None
    at = At(params, params, rates, draw_normals(noise, upload.normals, params))
    sent, _ = upload.update(named, upload.init(params), at)
    return sent["model"]
