"""What a client does in a round: its exchanges begin, it trains, they end, and it sends its update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.context import ClientBlock, ClientData, Context
from fedquilt.algorithm.exchange import Trained, Visit
from fedquilt.algorithm.transform import At, changes_nothing, effective_steps
from fedquilt.algorithm.updates import ClientUpdate
from fedquilt.base.rng import generator
from fedquilt.compute.layout import State, Tensors
from fedquilt.round.training import OPTIMISER, LocalResult, draw_normals, train_locally


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
    result = train_locally(algorithm, context, data, context.start, opened.given)
    return close_visit(algorithm, context, data, opened, result)


def sends_difference_alone(algorithm: Algorithm, block: ClientBlock) -> bool:
    """Say whether clients' updates are the difference between two models and nothing else."""
    tampered = block.corrupt and any(context.tamper for context in block.contexts)
    more = algorithm.exchanges or algorithm.local.keep or tampered
    return not more and changes_nothing(algorithm.upload)


def open_visit(algorithm: Algorithm, context: Context, data: ClientData) -> Opened:
    """Let every exchange begin."""
    visits = {
        exchange.name: Visit(
            context, data, _table(context.broadcast, exchange.name), _client_state(context, exchange.name)
        )
        for exchange in algorithm.exchanges
    }
    return Opened(visits, {e.name: e.begin(visits[e.name]) for e in algorithm.exchanges if e.begin is not None})


def close_visit(
    algorithm: Algorithm, context: Context, data: ClientData, opened: Opened, result: LocalResult
) -> ClientUpdate:
    """Make a client's update of what local training ended with, and let every exchange end."""
    delta = result.after.vector - context.start.vector
    client_state: State = {OPTIMISER: result.optimiser} if algorithm.local.keep else {}
    extra_upload: State = {}
    batches = gradients = 0
    trained = _trained(algorithm, context, result, delta)
    for exchange in algorithm.exchanges:
        if exchange.end is not None:
            parting = exchange.end(opened.visits[exchange.name], trained)
            client_state |= {exchange.name: dict(parting.client_state)} if parting.client_state is not None else {}
            extra_upload |= {exchange.name: dict(parting.extra_upload)} if parting.extra_upload is not None else {}
            batches, gradients = batches + parting.batches, gradients + parting.gradients
    return ClientUpdate(
        client=context.client,
        slot=context.slot,
        delta=_sent(algorithm, context, delta),
        buffers=result.after.buffers,
        counters=result.after.counters,
        weight=float(algorithm.weigh(len(data))),
        loss=result.loss,
        steps=result.steps,
        examples=result.examples,
        client_state=client_state or None,
        extra_upload=extra_upload,
        more_batches=batches,
        more_gradients=gradients,
    )


def _table(state: State, name: str) -> Tensors:
    return state.get(name, {})  # type: ignore[return-value]


def _client_state(context: Context, name: str) -> Tensors | None:
    return context.client_state.get(name)  # type: ignore[return-value]


def _trained(algorithm: Algorithm, context: Context, result: LocalResult, delta: Tensor) -> Trained:
    local = algorithm.local
    return Trained(
        after=result.after,
        delta=delta,
        steps=result.steps,
        effective_steps=effective_steps(result.steps, local.momentum),
        lr=local.rates[-1](context.round) if local.rates else 1.0,
    )


def _sent(algorithm: Algorithm, context: Context, delta: Tensor) -> Tensor:
    sent = _uploaded(algorithm, context, delta)
    return sent if context.tamper is None else context.tamper(sent)


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
