"""What is measured of a run's models: on the test set, on the training set, and in the per-client test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedquilt.algorithm.state import RunState
from fedquilt.algorithm.updates import Fault
from fedquilt.base.types import Indices
from fedquilt.compute.layout import ModelState
from fedquilt.round.evaluation import Counted, Evaluation, SplitName
from fedquilt.round.server import Server
from fedquilt.round.session import Measured, Pending, Session

Record = dict[str, Any]
"""What is known of a round, as it stands in metrics.jsonl."""

LOSSES = ("loss", "train_loss", "validation_loss")

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Where the distribution of clients' accuracies is noted."""

PerClientCallback = Callable[[int, Sequence[int], Sequence[Counted]], None]
"""(round, clients, what was counted in each one's per-client test): is called with the result of every client."""

Diagnose = Callable[[ModelState | None, Sequence[ModelState]], Record]
"""(the model of the round's start, if it is one, clients' models after it) -> what is measured of them."""


@dataclass(frozen=True)
class Measures:
    """What is measured besides the rounds themselves, and how often.

    The model is evaluated on the test set every `every` rounds and after the last; with `train_loss`, on the whole
    training set too, and with `validation` on what is held out of that. `diagnose` is called with the clients' models of
    those rounds, `per_client` with the results of the per-client test.
    """

    every: int = 1
    train_loss: bool = False
    diagnose: Diagnose | None = None
    per_client: PerClientCallback | None = None
    validation: bool = False


def evaluating(
    server: Server, session: Session, run: RunState, measures: Measures, split: SplitName = "test"
) -> Pending[Record]:
    """Begin to evaluate a run's models: the mean over groups of clients and, where there are several, each group's."""
    testing = [session.evaluate(group.state.model, split) for group in run.groups]
    training = [session.evaluate(group.state.model, "train") for group in run.groups] if measures.train_loss else []
    validating = [session.evaluate(group.state.model, "validation") for group in run.groups if measures.validation]
    per_client = (
        None if server.test_sizes is None else _per_client(server, session, server.test_sizes, run, measures.per_client)
    )

    def complete() -> Record:
        found, shares = [evaluation() for evaluation in testing], _shares(server, run)
        record = _figures(found, shares)
        if len(run.groups) > 1:
            clients = [round(share * len(server.population)) for share in shares]
            record["groups"] = [
                {"clients": count} | _figures([evaluation], [1.0])
                for count, evaluation in zip(clients, found, strict=True)
            ]
        if training:
            record["train_loss"] = _loss([evaluation() for evaluation in training], shares)
        if validating:
            figures = _figures([evaluation() for evaluation in validating], shares)
            record |= {f"validation_{name}": figures[name] for name in ("accuracy", "loss")}
        overflown = [name for name in LOSSES if name in record and record[name] is None]
        record |= {"not_finite": overflown} if overflown else {}
        return record if per_client is None else record | per_client()

    return complete


def _shares(server: Server, run: RunState) -> list[float]:
    clients = [len(server.population) if group.clients is None else len(group.clients) for group in run.groups]
    return [count / sum(clients) for count in clients]


def mean(values: Sequence[float], shares: Sequence[float]) -> float:
    """Return the mean over groups, weighted by their clients; of one group, its own value to the bit."""
    return values[0] if len(values) == 1 else math.fsum(v * s for v, s in zip(values, shares, strict=True))


def _figures(found: Sequence[Evaluation], shares: Sequence[float]) -> Record:
    accuracies = [evaluation.accuracy for evaluation in found if evaluation.accuracy is not None]
    record: Record = {"accuracy": mean(accuracies, shares) if accuracies else None, "loss": _loss(found, shares)}
    means = {name: mean([evaluation.metrics[name] for evaluation in found], shares) for name in found[0].metrics}
    return record | ({"metrics": {name: finite_or_none(mean) for name, mean in means.items()}} if means else {})


def _loss(evaluations: Sequence[Evaluation], shares: Sequence[float]) -> float | None:
    return finite_or_none(mean([evaluation.loss for evaluation in evaluations], shares))


def _per_client(
    server: Server, session: Session, sizes: Indices, run: RunState, per_client: PerClientCallback | None
) -> Pending[Record]:
    """Begin the per-client test."""
    tested, testing = list[int](), list[Pending[list[Measured]]]()
    for group in run.groups:
        members = range(len(sizes)) if group.clients is None else group.clients.tolist()
        chosen = [client for client in members if sizes[client]]
        tested += chosen
        testing.append(session.evaluate_clients(group.state, chosen, run.store))

    def complete() -> Record:
        found = [one for evaluation in testing for one in evaluation()]
        heard = [(client, one) for client, one in zip(tested, found, strict=True) if not isinstance(one, Fault)]
        counted = [one for _, one in heard]
        if per_client is not None and any(part.predictions and part.right is not None for part in counted):
            per_client(run.round, [client for client, _ in heard], counted)
        failed = [fault.named(server.population.names) for fault in found if isinstance(fault, Fault)]
        return _spread(counted) | ({"per_client_dropped": failed} if failed else {})

    return complete


def _spread(counted: Sequence[Counted]) -> Record:
    """Return the share of right predictions over all clients, and how it is spread over them."""
    right = [(part.right, part.predictions) for part in counted if part.predictions and part.right is not None]
    accuracies = sorted(hits / predictions for hits, predictions in right)
    if not accuracies:
        return {"per_client_accuracy": None, "per_client_accuracy_worst_tenth": None}
    worst = accuracies[: max(len(accuracies) // 10, 1)]
    return {
        "per_client_accuracy": sum(hits for hits, _ in right) / sum(predictions for _, predictions in right),
        "per_client_accuracy_worst_tenth": float(np.mean(worst)),
        "per_client_accuracy_quantiles": [round(float(value), 6) for value in np.quantile(accuracies, QUANTILES)],
    }


def finite_or_none(value: float) -> float | None:
    """Return None for a value that is not finite: JSON has no word for it."""
    return value if math.isfinite(value) else None
