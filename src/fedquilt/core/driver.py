"""The loop over rounds: plan, run, merge, evaluate, report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedquilt.core.client import ClientUpdate
from fedquilt.core.course import Heard, Step, Work, every_group
from fedquilt.core.engine import Session
from fedquilt.core.evaluation import Counted, Evaluation
from fedquilt.core.federation import Federation, SplitName
from fedquilt.core.params import ModelState
from fedquilt.core.round import fault_in
from fedquilt.core.state import RunState, ServerState
from fedquilt.core.tensors import flat

Record = dict[str, Any]
"""What is known of a round, as it stands in metrics.jsonl."""

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Where the distribution of clients' accuracies is noted."""

Own = Callable[[int, Sequence[int], Sequence[Counted]], None]
"""(round, clients, what was counted on each one's own test examples): is told how every client fares."""

Diagnose = Callable[[Federation, ModelState | None, Sequence[ModelState]], Record]
"""(federation, the model of the round's start, if it is one, clients' models after it) -> what is measured of them."""


@dataclass(frozen=True)
class Measures:
    """What is measured besides the rounds themselves, and how often.

    The model is evaluated on the test set every `every` rounds and after the last; with `train_loss`, on the whole
    training set too. `diagnose` is shown the clients' models of those rounds, `own` how every client fares on its own test
    examples.
    """

    every: int = 1
    train_loss: bool = False
    diagnose: Diagnose | None = None
    own: Own | None = None


def rounds(
    federation: Federation,
    session: Session,
    run: RunState,
    last: int,
    measures: Measures = Measures(),  # noqa: B008 - it is frozen
    heard: Heard | None = None,
) -> Iterator[tuple[RunState, Record]]:
    """Run the rounds after `run` up to `last`, and yield the state and the record of each."""
    course = federation.algorithm.course or every_group
    while run.round < last:
        begun = time.perf_counter()
        measured = (run.round + 1) % measures.every == 0 or run.round + 1 == last
        models: list[ModelState] = []
        observe = partial(_keep, federation, models) if measured and measures.diagnose is not None else None
        start = run.groups[0].state.model if len(run.groups) == 1 else None
        run, steps = course(Work(federation, session, heard, observe), run)
        record = _record(federation, steps)
        if measured:
            record |= evaluated(federation, session, run, measures)
            if measures.diagnose is not None:
                record |= measures.diagnose(federation, start, models)
        yield run, record | {"seconds": round(time.perf_counter() - begun, 4)}


def _keep(federation: Federation, models: list[ModelState], start: ModelState, update: ClientUpdate) -> None:
    if fault_in(update, federation.layout, start) is not None:
        return
    models.append(ModelState(start.vector + update.delta, update.buffers.clone(), update.counters.clone()))


def evaluated(
    federation: Federation, session: Session, run: RunState, measures: Measures, split: SplitName = "test"
) -> Record:
    """Evaluate a run's models: the mean over groups of clients and, where there are several, each group's."""
    found = [session.evaluate(group.state.model, split) for group in run.groups]
    shares = _shares(federation, run)
    record = _figures(found, shares)
    if len(run.groups) > 1:
        clients = [round(share * len(federation.partition)) for share in shares]
        record["groups"] = [
            {"clients": count} | _figures([evaluation], [1.0]) for count, evaluation in zip(clients, found, strict=True)
        ]
    if measures.train_loss:
        record["train_loss"] = _loss([session.evaluate(group.state.model, "train") for group in run.groups], shares)
    if federation.own_test is not None:
        record |= _own(federation, session, run, measures.own)
    return record


def _shares(federation: Federation, run: RunState) -> list[float]:
    clients = [len(federation.partition) if group.clients is None else len(group.clients) for group in run.groups]
    return [count / sum(clients) for count in clients]


def _mean(values: Sequence[float], shares: Sequence[float]) -> float:
    """Return the mean over groups, weighted by their clients; of one group, its own value to the bit."""
    return values[0] if len(values) == 1 else math.fsum(v * s for v, s in zip(values, shares, strict=True))


def _figures(found: Sequence[Evaluation], shares: Sequence[float]) -> Record:
    accuracies = [evaluation.accuracy for evaluation in found if evaluation.accuracy is not None]
    record: Record = {"accuracy": _mean(accuracies, shares) if accuracies else None, "loss": _loss(found, shares)}
    means = {name: _mean([evaluation.metrics[name] for evaluation in found], shares) for name in found[0].metrics}
    return record | ({"metrics": {name: _finite(mean) for name, mean in means.items()}} if means else {})


def _loss(evaluations: Sequence[Evaluation], shares: Sequence[float]) -> float | None:
    return _finite(_mean([evaluation.loss for evaluation in evaluations], shares))


def _own(federation: Federation, session: Session, run: RunState, own: Own | None) -> Record:
    """Test every client on its own data: the share of right predictions over all, and how it is spread over clients."""
    assert federation.own_test is not None
    sizes, tested, counted = federation.own_test.sizes, list[int](), list[Counted]()
    for group in run.groups:
        members = range(len(sizes)) if group.clients is None else group.clients.tolist()
        chosen = [client for client in members if sizes[client]]
        tested += chosen
        counted += session.evaluate_own(group.state, chosen, run.store)
    right = [(part.right, part.predictions) for part in counted if part.predictions and part.right is not None]
    accuracies = sorted(hits / predictions for hits, predictions in right)
    if not accuracies:
        return {"own_accuracy": None, "own_accuracy_worst_tenth": None}
    if own is not None:
        own(run.round, tested, counted)
    worst = accuracies[: max(len(accuracies) // 10, 1)]
    return {
        "own_accuracy": sum(hits for hits, _ in right) / sum(predictions for _, predictions in right),
        "own_accuracy_worst_tenth": float(np.mean(worst)),
        "own_accuracy_quantiles": [round(float(value), 6) for value in np.quantile(accuracies, QUANTILES)],
    }


def _finite(value: float) -> float | None:
    """Return nothing for a loss or metric that is not finite: JSON has no word for it."""
    return value if math.isfinite(value) else None


def _record(federation: Federation, steps: list[Step]) -> Record:
    first = steps[0].planned.round == 1
    seconds = [step.planned.seconds for step in steps if step.planned.seconds is not None]
    heard = [(step.merged.loss, step.merged.examples) for step in steps if step.merged.loss is not None]
    examples = sum(count for _, count in heard)
    faults = [fault for step in steps for fault in step.merged.faults]
    dropped = [{"client": fault.client, "reason": fault.reason} for fault in faults if not fault.simulated]
    absent = [{"client": fault.client, "reason": fault.reason} for fault in faults if fault.simulated]
    down = federation.downloaded_first if first else 0
    down += sum(_down(federation, step.before) * len(step.planned.clients) for step in steps)
    up = sum(federation.layout.nbytes * len(step.merged.clients) + step.merged.told for step in steps)
    up += federation.uploaded_first if first else 0
    sends = federation.algorithm.sends
    record: Record = {
        "round": steps[0].planned.round,
        "accuracy": None,
        "loss": None,
        "train_loss": None,
        "local_loss": None
        if not heard
        else _mean([x for x, _ in heard], [count / max(examples, 1) for _, count in heard]),
        "clients": [client for step in steps for client in step.merged.clients],
        "dropped": dropped,
        "applied": any(step.applied for step in steps),
        "steps": sum(step.merged.steps for step in steps),
        "examples": sum(step.merged.examples for step in steps),
        "bytes_down": down if sends else 0,
        "bytes_up": up if sends else 0,
    }
    return record | ({"absent": absent} if absent else {}) | ({"simulated_seconds": max(seconds)} if seconds else {})


def _down(federation: Federation, state: ServerState) -> int:
    return federation.layout.nbytes + sum(tensor.nbytes for _, tensor in flat(state.announced))
