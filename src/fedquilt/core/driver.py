"""The loop over rounds: plan, run, merge, evaluate, report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.engine import Session
from fedquilt.core.federation import Federation
from fedquilt.core.round import Merged, Plan, merge, plan
from fedquilt.core.state import ClientStore, ServerState

Record = dict[str, Any]
"""What is known of a round, as it stands in metrics.jsonl."""

Heard = Callable[[int, int], None]
"""(clients heard from in this round, clients of the round)."""


def rounds(
    federation: Federation,
    session: Session,
    state: ServerState,
    store: ClientStore,
    last: int,
    eval_every: int = 1,
    train_loss: bool = False,
    heard: Heard | None = None,
) -> Iterator[tuple[ServerState, ClientStore, Record]]:
    """Run the rounds after `state` up to `last`, and yield the state, the clients' own and the record of each.

    The model is evaluated on the test set every `eval_every` rounds and after the last; with `train_loss`, on the whole
    training set too.
    """
    algorithm, layout, sizes = federation.algorithm, federation.layout, federation.partition.sizes
    while state.round < last:
        begun = time.perf_counter()
        planned = plan(algorithm, state, sizes, federation.seed)
        results = session.run(planned, state.model, store)
        before = state.model
        state, merged = merge(algorithm, layout, state, planned, _announced(results, len(planned.clients), heard))
        store = store.updated(merged.kept)
        record = _record(federation, planned, merged, applied=state.model is not before)
        if state.round % eval_every == 0 or state.round == last:
            test = session.evaluate(state.model, "test")
            record |= {"accuracy": test.accuracy, "loss": _finite(test.loss)}
            if train_loss:
                record["train_loss"] = _finite(session.evaluate(state.model, "train").loss)
        yield state, store, record | {"seconds": round(time.perf_counter() - begun, 4)}


def _announced(
    results: Iterable[ClientUpdate | Fault], total: int, heard: Heard | None
) -> Iterator[ClientUpdate | Fault]:
    for count, result in enumerate(results, start=1):
        yield result
        if heard is not None:
            heard(count, total)


def _finite(value: float) -> float | None:
    """Return nothing for a loss that overflowed: JSON has no word for it."""
    return value if math.isfinite(value) else None


def _record(federation: Federation, planned: Plan, merged: Merged, applied: bool) -> Record:
    size = federation.layout.nbytes
    announced = sum(tensor.nbytes for tensor in federation.announced.values())
    return {
        "round": planned.round,
        "accuracy": None,
        "loss": None,
        "train_loss": None,
        "local_loss": merged.loss,
        "clients": merged.clients,
        "dropped": [{"client": fault.client, "reason": fault.reason} for fault in merged.faults],
        "applied": applied,
        "steps": merged.steps,
        "examples": merged.examples,
        "bytes_down": (size + announced) * len(planned.clients),
        "bytes_up": size * len(merged.clients),
    }
